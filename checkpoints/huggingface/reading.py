"""From a folder of Hugging Face's to our networks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

import storage
from checkpoints.huggingface import names, task_heads
from checkpoints.huggingface.config import HEAD_ACT
from checkpoints.huggingface.source import Source
from checkpoints.huggingface.tokenizer import TOKENIZER_FILE, read_vocabulary
from checkpoints.model_directory import (
    INCOMPLETE,
    Conversion,
    Networks,
    Options,
    check_vocabulary,
    describe_pretraining,
    only_networks,
)
from data.vocabulary import VOCABULARY_FILE, Vocabulary
from errors import InputError
from finetune.load import TaskModel
from model import DiscriminatorHead, EncoderConfig, build_encoder
from pretrain.hparams import PretrainingHParams
from pretrain.load import SpecialIds
from pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings
from settings import differences
from training.objective import Objective
from training.stored_shapes import no_larger_than

GENERATOR_FOLDER = "generator"  # where a discriminator's generator is, unless said otherwise
NO_GENERATOR = "none"  # for the option `generator`; a folder of that name is `./none`
# What a generator may have of its own without computing anything else.
_TRAINING_ONLY = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
_BERT = {"objective": "masked_lm", "mask_token_prob": 0.8, "random_token_prob": 0.1}


def read(path: str, options: Options) -> Conversion:
    """Reads a ConvBERT, an ELECTRA or a BERT, and a discriminator's generator if there is one.

    A model with a masked-LM head becomes a masked language model; a discriminator and a generator
    become replaced-token detection; anything less, the encoder and the head that there is.

    Args:
        path: folder with `config.json`, safetensors and tokenizer files.
        options: `generator` is the generator's folder, by default `generator/` in `path` where
            there is one, and "none" for doing without it; `vocab`, `do_lower_case` and
            `strip_accents` overrule the tokenizer files, `config` the `config.json`.
    """
    source, vocabulary = _open(path, options)
    generator = _open_generator(source, vocabulary, options)
    shapes = [*source.tensors.shapes.values()]
    shapes += generator.tensors.shapes.values() if generator is not None else ()
    with no_larger_than(shapes, path):
        hparams, found = _build(source, generator, vocabulary)
    source.fill(names.model_slots(found.encoder, found.head, source.prefix, source.model_type))
    if generator is not None:
        small, head = found.generator, found.generator_head
        generator.fill(names.model_slots(small, head, generator.prefix, generator.model_type))
        source.notes += generator.notes
    return Conversion(source.config, hparams, vocabulary, found, notes=source.notes)


def read_fine_tuned(path: str, options: Options) -> tuple[TaskModel, list[str]]:
    """A model with the head of a task, `options.task`, and notes; see `read`."""
    source, vocabulary = _open(path, options)
    with no_larger_than(source.tensors.shapes.values(), path):
        found = task_heads.filled(source, vocabulary, options.task)
    return found, source.notes


def _open(path: str, options: Options) -> tuple[Source, Vocabulary]:
    source = Source(path, options.config)
    vocabulary = read_vocabulary(path, options)
    source.notes += check_vocabulary(vocabulary, source.config, path)
    return source, vocabulary


def _open_generator(source: Source, vocabulary: Vocabulary, options: Options) -> Source | None:
    """The discriminator's generator, checked; None where there is none."""
    inside = os.path.join(source.folder, GENERATOR_FOLDER)
    folder = options.generator or (inside if storage.isdir(inside) else None)
    if folder == NO_GENERATOR and storage.isdir(inside):
        source.notes.append(f"left out by --generator=none: the generator, {inside}")
    if folder in (None, NO_GENERATOR):
        return None
    source.notes.append(f"generator: {folder}")
    if source.has_masked_lm_head:
        raise InputError(
            f"{source.folder}: should be a discriminator, as a generator is given."
            " Received: a model with a masked-LM head"
        )
    generator = Source(folder)
    if generator.model_type != source.model_type or not generator.has_masked_lm_head:
        head = "a" if generator.has_masked_lm_head else "no"
        raise InputError(
            f"{folder}: the generator should be of model_type {source.model_type}, with a masked-LM"
            f" head of tied embeddings. Received: {generator.model_type}, with {head} such head;"
            f" --generator {NO_GENERATOR} converts without it"
        )
    described = [os.path.join(folder, name) for name in (TOKENIZER_FILE, VOCABULARY_FILE)]
    has_own = options.vocab is None and any(map(storage.exists, described))
    if has_own and read_vocabulary(folder, options) != vocabulary:
        raise InputError(
            f"{folder}: the generator's vocabulary should be that of {source.folder};"
            " tokens or switches differ"
        )
    return generator


def _build(
    source: Source, generator: Source | None, vocabulary: Vocabulary
) -> tuple[PretrainingHParams, Objective | Networks]:
    """Hyper-parameters and networks of what there is."""
    config, has_head = source.config, source.has_discriminator_head
    if generator is not None:
        values = _generator_values(source, generator) | _head_act(generator)
        missing = None if has_head else "discriminator head"
    elif source.has_masked_lm_head:
        values, missing = {**_BERT, **_head_act(source)}, None
    else:
        values = _BERT if source.model_type == "bert" else {}
        missing = "generator" if has_head else "head of its pre-training"
    hparams = describe_pretraining(config, vocabulary, **values)
    if missing is not None:
        source.notes.append(f"{source.folder}: there is no {missing}; {INCOMPLETE}")
    if generator is not None or missing is None:
        objective = hparams.build_objective(config, SpecialIds(vocabulary))
        there = ["encoder", "generator", "generator_head"]
        return hparams, objective if missing is None else only_networks(objective, there)
    head = DiscriminatorHead(config, name="discriminator_predictions") if has_head else None
    if head is not None:
        head(tf.zeros([1, 1, config.hidden_size]))
    return hparams, Networks(build_encoder(config), head)


def _head_act(source: Source) -> dict[str, str]:
    """What makes the activation of a masked-LM head: of ConvBERT and ELECTRA it is always gelu."""
    if source.model_type == "bert" or source.config.hidden_act == HEAD_ACT:
        return {}
    return {"masked_lm_act": HEAD_ACT}


def _generator_values(source: Source, generator: Source) -> dict[str, Any]:
    """The fields of PretrainingHParams that make the given generator of the source's encoder."""
    config, small = source.config, generator.config
    inner = [
        name.removeprefix(generator.prefix)
        for name in generator.tensors.shapes
        if name.startswith(generator.prefix)
    ]
    if small == config and _same(source, generator, inner):
        source.notes.append("generator: the discriminator's own encoder, of equal values")
        return {"untied_generator": False}
    for name in _TRAINING_ONLY:
        value, received = getattr(config, name), getattr(small, name)
        if received != value:
            generator.notes.append(
                f"{generator.folder}: `{name}` {received} becomes the discriminator's, {value};"
                " it matters in training only"
            )
            small = small.replace(**{name: value})
    untied = not _same(source, generator, names.EMBEDDINGS)
    shares = _shares(config, small, untied)
    width, kept = shares["generator_hidden_size"], "its own" if untied else "the discriminator's"
    made = ReplacedTokenDetectionSettings(**shares).generator_config(config)
    if wrong := differences(dataclasses.asdict(made), dataclasses.asdict(small)):
        raise InputError(
            f"{generator.folder}, whose embeddings are {kept}: not a generator {width:g} times as"
            f" wide as the encoder: {'; '.join(wrong)}"
        )
    source.notes.append(
        f"generator: {width:g} of the discriminator's width, {shares['generator_layers']:g} of its"
        f" layers; its embeddings are {kept}"
    )
    return shares


def _shares(config: EncoderConfig, small: EncoderConfig, untied: bool) -> dict[str, Any]:
    shares = {
        "generator_hidden_size": small.hidden_size / config.hidden_size,
        "generator_layers": small.num_hidden_layers / config.num_hidden_layers,
        "untied_generator_embeddings": untied,
    }
    if small.intermediate_size != 4 * small.hidden_size:
        shares["generator_intermediate_size"] = small.intermediate_size
    return shares


def _same(source: Source, generator: Source, inner_names: Iterable[str]) -> bool:
    """Returns True if two encoders have such tensors of the same values, to the bit."""
    pairs = [(source.prefix + name, generator.prefix + name) for name in inner_names]
    return all(
        one in source.tensors.shapes
        and np.array_equal(source.tensors.read(one), generator.tensors.read(other))
        for one, other in pairs
    )

"""From a folder of Hugging Face's to our networks."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

import storage
from checkpoints.huggingface import names, task_heads
from checkpoints.huggingface.config import HEAD_ACT
from checkpoints.huggingface.source import GENERATOR_FOLDER, Source, open_source
from checkpoints.huggingface.tokenizer import TOKENIZER_FILE, read_vocabulary
from checkpoints.model_directory import (
    INCOMPLETE,
    Conversion,
    Networks,
    Options,
    describe_pretraining,
    generator_shares,
    only_networks,
)
from data.vocabulary import VOCABULARY_FILE, Vocabulary
from errors import InputError, located
from finetune.load import FineTuned
from model import DiscriminatorHead, Encoder, MaskedLMHead, build_encoder
from model.config import CONFIG_FILE
from pretrain.hparams import PretrainingHParams
from pretrain.load import SpecialIds
from pretrain.objectives.masked_lm import MaskedLM
from pretrain.objectives.replaced_token_detection import ReplacedTokenDetection
from training.stored_shapes import no_larger_than

# What a generator may have of its own without computing anything else.
_TRAINING_ONLY = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
_MISSING = "there is no {}; " + INCOMPLETE
_BERT = {"objective": "masked_lm", "mask_token_prob": 0.8, "random_token_prob": 0.1}
NO_GENERATOR = "none"  # for the option `generator`; a folder of that name is `./none`


def read(path: str, options: Options) -> Conversion:
    """Reads a ConvBERT, an ELECTRA or a BERT, and a discriminator's generator if there is one.

    A model with a masked-LM head becomes a masked language model; a discriminator and a generator
    become replaced-token detection; anything less, the encoder and the head that there is.

    Args:
        path: folder with `config.json`, safetensors and tokenizer files.
        options: `generator` is the generator's folder, by default `generator/` in `path` where
            there is one, and "none" for doing without it; `vocab`, `do_lower_case` and
            `strip_accents` overrule the tokenizer files, `config` the `config.json`.

    Raises:
        InputError: a file is missing, damaged or describes something that does not exist here, or
            the files do not belong together; names the file and tensor.
    """
    source = open_source(path, options.config)
    vocabulary = _vocabulary(source, options)
    generator = _open_generator(source, vocabulary, options)
    stored = [*source.files.shapes.values()]
    stored += generator.files.shapes.values() if generator is not None else ()
    with no_larger_than(stored, source.folder):
        if generator is not None:
            hparams, objective = _replaced_token_detection(source, generator, vocabulary)
        elif source.has_masked_lm_head:
            hparams, objective = _masked_lm(source, vocabulary)
        else:
            hparams, objective = _encoder(source, vocabulary)
    notes = source.notes + (generator.notes if generator is not None else [])
    return Conversion(source.config, hparams, vocabulary, objective, notes=notes)


def read_fine_tuned(path: str, options: Options) -> tuple[FineTuned, list[str]]:
    """Reads a model with the head of a task, `options.task`; see `read`.

    Returns:
        The model, and notes on what was inferred or left out.

    Raises:
        InputError: as of `read`; or the head is not one of such a task.
    """
    source = open_source(path, options.config)
    with no_larger_than(source.files.shapes.values(), source.folder):
        found = task_heads.filled(source, _vocabulary(source, options), options.task)
    return found, source.notes


def _vocabulary(source: Source, options: Options) -> Vocabulary:
    vocabulary, inferred = read_vocabulary(
        source.folder,
        vocab=options.vocab,
        do_lower_case=options.do_lower_case,
        strip_accents=options.strip_accents,
    )
    source.notes += inferred
    rows = source.config.vocab_size
    if vocabulary.size > rows:
        raise InputError(
            f"{source.folder}: `vocab_size` of its {CONFIG_FILE} should be at least the number of"
            f" tokens of the vocabulary, {vocabulary.size}. Received: {rows}"
        )
    if vocabulary.size < rows:
        source.notes.append(
            f"padded vocabulary: the embeddings have {rows} rows for {vocabulary.size} tokens; the"
            f" ids from {vocabulary.size} on are never predicted, drawn or accepted as input"
        )
    return vocabulary


def _open_generator(source: Source, vocabulary: Vocabulary, options: Options) -> Source | None:
    """The discriminator's generator, checked; None where there is none."""
    folder = options.generator
    inside = os.path.join(source.folder, GENERATOR_FOLDER)
    if folder == NO_GENERATOR:
        if storage.isdir(inside):
            source.notes.append(f"left out by --generator=none: the generator, {inside}")
        return None
    if folder is None and storage.isdir(inside):
        folder = inside
        source.notes.append(f"generator: {inside}")
    if folder is None:
        return None
    if source.has_masked_lm_head:
        raise InputError(
            f"{source.folder}: should be a discriminator, as a generator is given."
            " Received: a model with a masked-LM head"
        )
    generator = open_source(folder)
    if generator.model_type != source.model_type or not generator.has_masked_lm_head:
        head = "a" if generator.has_masked_lm_head else "no"
        raise InputError(
            f"{folder}: the generator should be of model_type {source.model_type}, with a masked-LM"
            f" head of tied embeddings. Received: {generator.model_type}, with {head} such head;"
            f" --generator {NO_GENERATOR} converts without it"
        )
    described = (TOKENIZER_FILE, VOCABULARY_FILE)
    if options.vocab is None and any(storage.exists(os.path.join(folder, f)) for f in described):
        own, _ = read_vocabulary(
            folder, do_lower_case=options.do_lower_case, strip_accents=options.strip_accents
        )
        if own != vocabulary:
            raise InputError(
                f"{folder}: the generator's vocabulary should be that of {source.folder};"
                " tokens or switches differ"
            )
    return generator


def _replaced_token_detection(
    source: Source, generator: Source, vocabulary: Vocabulary
) -> tuple[PretrainingHParams, ReplacedTokenDetection | Networks]:
    """A discriminator, or an encoder without its head, and the generator."""
    hparams = _with_generator(source, generator, vocabulary)
    objective = ReplacedTokenDetection(hparams, source.config, SpecialIds(vocabulary))
    if not source.has_discriminator_head:
        source.notes.append(f"{source.folder}: {_MISSING.format('discriminator head')}")
        objective = only_networks(objective, ["encoder", "generator", "generator_head"])
    _fill_discriminator(source, objective.encoder, objective.head)
    _fill_masked_lm(generator, objective.generator, objective.generator_head)
    return hparams, objective


def _masked_lm(source: Source, vocabulary: Vocabulary) -> tuple[PretrainingHParams, MaskedLM]:
    hparams = describe_pretraining(source.config, vocabulary, **_BERT, **_head_act(source))
    objective = MaskedLM(hparams, source.config, SpecialIds(vocabulary))
    _fill_masked_lm(source, objective.encoder, objective.head)
    return hparams, objective


def _encoder(source: Source, vocabulary: Vocabulary) -> tuple[PretrainingHParams, Networks]:
    """An encoder, and the discriminator's head if there is one."""
    config = source.config
    encoder, head = build_encoder(config), None
    if source.has_discriminator_head:
        head = DiscriminatorHead(config, name="discriminator_predictions")
        head(tf.zeros([1, 1, config.hidden_size]))
    _fill_discriminator(source, encoder, head)
    missing = "head of its pre-training" if head is None else "generator"
    source.notes.append(f"{source.folder}: {_MISSING.format(missing)}")
    bert = _BERT if source.model_type == "bert" else {}
    return describe_pretraining(config, vocabulary, **bert), Networks(encoder=encoder, head=head)


def _fill_discriminator(source: Source, encoder: Encoder, head: DiscriminatorHead | None) -> None:
    own = names.discriminator_slots(head) if head is not None else {}
    source.fill({**names.encoder_slots(encoder, source.prefix), **own})


def _fill_masked_lm(source: Source, encoder: Encoder, head: MaskedLMHead) -> None:
    own = names.masked_lm_slots(head, source.model_type)
    source.fill({**names.encoder_slots(encoder, source.prefix), **own})


def _head_act(source: Source) -> dict[str, str]:
    """What makes the activation of a masked-LM head: of ConvBERT and ELECTRA it is always gelu."""
    if source.model_type == "bert" or source.config.hidden_act == HEAD_ACT:
        return {}
    return {"masked_lm_act": HEAD_ACT}


def _with_generator(
    source: Source, generator: Source, vocabulary: Vocabulary
) -> PretrainingHParams:
    """Hyper-parameters whose generator is the given one; InputError when there are none."""
    config, small = source.config, generator.config
    stored = [name for name in generator.stored if name.startswith(generator.prefix)]
    inner = [name.removeprefix(generator.prefix) for name in stored]
    if small == config and _same(source, generator, inner):
        source.notes.append("generator: the discriminator's own encoder, of equal values")
        return describe_pretraining(
            config, vocabulary, untied_generator=False, **_head_act(generator)
        )
    for name in _TRAINING_ONLY:
        value, received = getattr(config, name), getattr(small, name)
        if received != value:
            generator.notes.append(
                f"{generator.folder}: `{name}` {received} becomes the discriminator's, {value};"
                " it matters in training only"
            )
            small = small.replace(**{name: value})
    untied = not _same(source, generator, names.EMBEDDINGS)
    kept = "its own" if untied else "the discriminator's, of equal values"
    with located(f"{generator.folder}, whose embeddings are {kept}"):
        shares = generator_shares(config, small, untied_embeddings=untied)
    source.notes.append(
        f"generator: {shares['generator_hidden_size']:g} of the discriminator's width,"
        f" {shares['generator_layers']:g} of its layers; its embeddings are {kept}"
    )
    return describe_pretraining(config, vocabulary, **shares, **_head_act(generator))


def _same(source: Source, generator: Source, inner_names: Iterable[str]) -> bool:
    """Whether two encoders have such tensors of the same values, to the bit."""
    pairs = [(source.prefix + name, generator.prefix + name) for name in inner_names]
    return all(
        one in source.stored and np.array_equal(source.read(one), generator.read(other))
        for one, other in pairs
    )

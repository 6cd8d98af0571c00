"""Reads a folder written by transformers' `save_pretrained` into our networks."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable
from typing import Any

from convbert.checkpoints import names
from convbert.checkpoints.huggingface.config import HEAD_ACT, UNTIED, encoder_config
from convbert.checkpoints.huggingface.tensors import TensorFiles
from convbert.checkpoints.huggingface.tokenizer import TOKENIZER_FILE, read_vocabulary
from convbert.checkpoints.model_directory import Conversion, Options, build, check_vocabulary
from convbert.checkpoints.slots import Slot, fill
from convbert.common import storage
from convbert.common.errors import InputError
from convbert.common.files import read_json
from convbert.common.settings import differences
from convbert.data.vocabulary import VOCABULARY_FILE, Vocabulary
from convbert.model.config import CONFIG_FILE
from convbert.pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings

GENERATOR_FOLDER = "generator"  # default folder of a discriminator's generator
# transformers has no replaced-token detection for ConvBERT, and does not read this file.
DISCRIMINATOR_FILE = "discriminator_predictions.safetensors"
# Fields in which a generator may differ without a different computation.
_TRAINING_ONLY = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
_BERT = {"objective": "masked_lm", "mask_token_prob": 0.8, "random_token_prob": 0.1}
_OUTPUT_SCOPES = (f"{names.MASKED_LM_HEAD}.", "generator_lm_head.", f"{names.BERT_HEAD}.")
# Copies of tensors that the output layer shares, which files may also hold. {encoder} is the
# encoder's prefix.
_WORDS = "{encoder}embeddings.word_embeddings.weight"
_COPIES = {
    "generator_lm_head.weight": _WORDS,
    f"{names.BERT_HEAD}.decoder.weight": _WORDS,
    f"{names.BERT_HEAD}.decoder.bias": f"{names.BERT_HEAD}.bias",
}
# Prefixes (after the encoder's) of names that are not used here, and the reasons.
_LEFT_OUT = {
    "embeddings.position_ids": "position numbers, not learned",
    "embeddings.token_type_ids": "zeros, not learned",
    "pooler.": "a layer on the first token's state, which encoders do not have here",
}


class HuggingFaceFolder:
    """A folder's configuration, tensors and notes.

    The encoder's names begin with `prefix`, those of heads do not; `is_tied` is True if the output
    layer is the word embeddings, as far as files show.
    """

    def __init__(self, folder: str):
        self.folder, path = folder, os.path.join(folder, CONFIG_FILE)
        fields = read_json(path)
        self.config, self.notes = encoder_config(fields, path)
        self.model_type = fields["model_type"]
        self.tensors = TensorFiles(folder, extra=DISCRIMINATOR_FILE)
        self.notes += self.tensors.notes()
        self.prefix = f"{self.model_type}." if self._has(self.model_type) else ""
        self.copies = {copy: of.format(encoder=self.prefix) for copy, of in _COPIES.items()}
        self.is_tied = self.tensors.tied(self.copies, fields)
        scope = names.BERT_HEAD if self.model_type == "bert" else names.MASKED_LM_HEAD
        self.has_masked_lm_head = self._has(scope) and self.is_tied
        self.has_discriminator_head = self._has(names.DISCRIMINATOR_HEAD)

    def fill(self, slots: dict[str, Slot], of_task: bool = False) -> None:
        """Assigns the tensors to variables; `of_task` if these include a task's head."""
        reason = functools.partial(self._left_out, of_task=of_task)
        self.notes += fill(slots, self.tensors, reason)

    def _left_out(self, name: str, of_task: bool) -> str | None:
        if name in self.copies and self.is_tied:
            return f"a copy of {self.copies[name]}"
        if name.startswith(_OUTPUT_SCOPES):
            return None if self.is_tied else f"a masked-LM head with {UNTIED}"
        inner = name.removeprefix(f"{self.model_type}.")
        for start, why in _LEFT_OUT.items():
            if inner.startswith(start):
                return why
        if of_task or name.startswith(names.DISCRIMINATOR_HEAD):
            return None
        beside = self.prefix and not name.startswith(self.prefix)
        return "beside the encoder; --task says which task a head is of" if beside else None

    def _has(self, scope: str) -> bool:
        return any(name.startswith(f"{scope}.") for name in self.tensors.shapes)


def read(path: str, options: Options) -> Conversion:
    """Reads a ConvBERT, ELECTRA or BERT, and a discriminator's generator if there is one.

    A model with a masked-LM head becomes a masked language model, a discriminator with a generator
    replaced-token detection; otherwise returns the encoder and the existing head.
    """
    source, vocabulary = open_source(path, options)
    generator = _open_generator(source, vocabulary, options)
    if generator is not None:
        values = _generator_values(source, generator) | _head_act(generator)
        there = ["encoder", "generator", "generator_head"]
    elif source.has_masked_lm_head:
        values, there = {**_BERT, **_head_act(source)}, ["encoder", "head"]
    else:
        values, there = _BERT if source.model_type == "bert" else {}, ["encoder"]
    there += ["head"] if source.has_discriminator_head else []
    conversion = build(source.config, vocabulary, values, there, path)
    found = conversion.objective
    sources = [(source, found.encoder, found.head)]
    if generator is not None:
        sources.append((generator, found.generator, found.generator_head))
    for of, encoder, head in sources:
        of.fill(names.huggingface_slots(encoder, head, of.prefix, of.model_type))
    conversion.notes[:0] = [note for of, *_ in sources for note in of.notes]
    return conversion


def open_source(path: str, options: Options) -> tuple[HuggingFaceFolder, Vocabulary]:
    """A folder, and its vocabulary or the one that the options say."""
    source = HuggingFaceFolder(path)
    vocabulary = read_vocabulary(path, options)
    source.notes += check_vocabulary(vocabulary, source.config, path)
    return source, vocabulary


def _open_generator(
    source: HuggingFaceFolder, vocabulary: Vocabulary, options: Options
) -> HuggingFaceFolder | None:
    """The discriminator's generator, checked, or None if it has none."""
    inside = os.path.join(source.folder, GENERATOR_FOLDER)
    folder = options.generator or (inside if storage.isdir(inside) else None)
    if folder is None:
        return None
    source.notes.append(f"generator: {folder}")
    if source.has_masked_lm_head:
        expected = "should be a discriminator if a generator is given"
        raise InputError(f"{source.folder}: {expected}. Received: a masked language model")
    generator = HuggingFaceFolder(folder)
    if generator.model_type != source.model_type or not generator.has_masked_lm_head:
        head = "a" if generator.has_masked_lm_head else "no"
        raise InputError(
            f"{folder}: the generator should be of model_type {source.model_type}, with a masked-LM"
            f" head of tied embeddings. Received: {generator.model_type}, with {head} such head"
        )
    described = [os.path.join(folder, name) for name in (TOKENIZER_FILE, VOCABULARY_FILE)]
    has_own = options.vocab is None and any(map(storage.exists, described))
    if has_own and read_vocabulary(folder, options) != vocabulary:
        raise InputError(f"{folder}: its tokens and switches should be those of {source.folder}")
    return generator


def _head_act(source: HuggingFaceFolder) -> dict[str, str]:
    """Returns the `masked_lm_act` of ConvBERT and ELECTRA, always gelu, if `hidden_act` differs."""
    if source.model_type == "bert" or source.config.hidden_act == HEAD_ACT:
        return {}
    return {"masked_lm_act": HEAD_ACT}


def _generator_values(source: HuggingFaceFolder, generator: HuggingFaceFolder) -> dict[str, Any]:
    """The fields of PretrainingHParams that make the given generator of the source's encoder."""
    config, small, start = source.config, generator.config, generator.prefix
    shapes = generator.tensors.shapes
    inner = [name.removeprefix(start) for name in shapes if name.startswith(start)]
    inner = [name for name in inner if not name.startswith(tuple(_LEFT_OUT))]
    if small == config and _same(source, generator, inner):
        source.notes.append("generator: the discriminator's own encoder, with equal values")
        return {"untied_generator": False}
    small = small.replace(**{name: getattr(config, name) for name in _TRAINING_ONLY})
    untied = not _same(source, generator, (n for n in inner if n.startswith("embeddings.")))
    apart = untied and small.embedding_size == config.embedding_size != small.hidden_size
    shares = {
        "generator_hidden_size": small.hidden_size / config.hidden_size,
        "generator_layers": small.num_hidden_layers / config.num_hidden_layers,
        "untied_generator_embeddings": untied and not apart,
        "disentangled_embeddings": apart,
    }
    if small.intermediate_size != 4 * small.hidden_size:
        shares["generator_intermediate_size"] = small.intermediate_size
    width, kept = shares["generator_hidden_size"], "its own" if untied else "the discriminator's"
    made = ReplacedTokenDetectionSettings(**shares).generator_config(config)
    if wrong := differences(dataclasses.asdict(made), dataclasses.asdict(small)):
        raise InputError(
            f"{generator.folder}, whose embeddings are {kept}: the generator should be {width:g}"
            f" times as wide as the encoder. Received: {'; '.join(wrong)}"
        )
    layers = f"{shares['generator_layers']:g} of its layers; its embeddings are {kept}"
    source.notes.append(f"generator: {width:g} of the discriminator's width, {layers}")
    return shares


def _same(
    source: HuggingFaceFolder, generator: HuggingFaceFolder, inner_names: Iterable[str]
) -> bool:
    """Returns True if two encoders have such tensors of the same values, to the bit."""
    return all(
        source.tensors.equal(source.prefix + name, generator.tensors, generator.prefix + name)
        for name in inner_names
    )

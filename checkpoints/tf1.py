"""Conversion from and to original TensorFlow 1 checkpoints: weights, optimizer's moments, step.

A `config.json` next to them has ELECTRA's names of settings.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import numpy as np

from convbert.checkpoints import model_directory, names
from convbert.checkpoints.model_directory import Conversion, Networks, Options
from convbert.checkpoints.slots import Slot, fill
from convbert.checkpoints.tf1_file import GLOBAL_STEP, TensorFile, find_checkpoint, write_checkpoint
from convbert.common import files, storage
from convbert.common.errors import InputError, located
from convbert.common.settings import field_names
from convbert.data.vocabulary import VOCABULARY_FILE
from convbert.model import EncoderConfig, named_size
from convbert.model.config import CONFIG_FILE
from convbert.pretrain.hparams import PretrainingHParams, translate
from convbert.pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings
from convbert.training.optimizer import AdamWeightDecay

MOMENTS = ("/adam_m", "/adam_v")  # the original's optimizer slots: NAME/adam_m
_SCOPES = (names.ENCODER, names.GENERATOR, names.DISCRIMINATOR_HEAD, names.MASKED_LM_HEAD)
# `conv_type` -> `token_mixer`, if the original supports it: not convolution alone.
_CONV_TYPES = {"sdconv": "mixed", "noconv": "attention"}
_ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
_ENCODER_FIELDS = (
    *("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("max_position_embeddings", "type_vocab_size", "initializer_range"),
    *("conv_kernel_size", "head_ratio", "linear_groups"),
)
# The original's names of the generator's fields. `generator_hidden_size` is a width or, up to 1, a
# share of the encoder's, as in `--hparams`.
_WIDTH, _HEADS = "generator_hidden_size", "generator_num_attention_heads"
_GENERATOR_FIELDS = {
    _WIDTH: "hidden_size",
    "generator_intermediate_size": "intermediate_size",
    _HEADS: "num_attention_heads",
}
_SHARE = "generator_hidden_size_multiplier"
# Fields of PretrainingHParams with another meaning there.
_OTHERS = {*_ENCODER_FIELDS, *_GENERATOR_FIELDS, "conv_type", "model_size", "do_lower_case"}
_OTHERS |= {"model_hparam_overrides", "seed", "precision", "optimizer", "schedule_from_step"}
_SETTINGS = {*field_names(PretrainingHParams, ReplacedTokenDetectionSettings)} - _OTHERS
_KNOWN = {*_ENCODER_FIELDS, *_GENERATOR_FIELDS, *_SETTINGS, _SHARE, "conv_type"}


def read(path: str, options: Options) -> Conversion:
    """Reads an original checkpoint of ConvBERT or ELECTRA.

    `path` is the checkpoint without `.index`, or its folder.
    """
    prefix, notes = find_checkpoint(path)
    file, folder = TensorFile(prefix), os.path.dirname(prefix)
    described = os.path.join(folder, CONFIG_FILE)
    said = _read_config(described) if storage.exists(described) else {}
    vocabulary = model_directory.load_vocabulary(options, folder, VOCABULARY_FILE)
    networks, shown = _find_networks(file, said)
    with located(described if said else prefix):
        config = _encoder(file, said, vocabulary.size, options.model_size)
        notes += model_directory.check_vocabulary(vocabulary, config, prefix)
        values = {**_pretraining_fields(said, config.hidden_size), **shown}
        made = model_directory.build(config, vocabulary, values, networks, prefix)
        objective, hparams = made.objective, made.hparams
        fields = _config_fields(config, objective, hparams, vocabulary.size)
        # Shapes do not show the number of heads without a convolution.
        if _HEADS in said and said[_HEADS] != fields.get(_HEADS, said[_HEADS]):
            raise InputError(f"`{_HEADS}` should be {fields[_HEADS]}. Received: {said[_HEADS]}")
    complete = not isinstance(objective, Networks)
    optimizer = hparams.build_optimizer(objective) if complete else None
    slots = names.original_slots(objective)
    moments = _moments(slots, optimizer) if optimizer else {}
    stored = {name: slot for name, slot in moments.items() if name in file.shapes}
    if not stored:
        optimizer = None
        notes.append("no optimizer moments, or missing networks: it starts afresh")
    elif absent := [name for name in moments if name not in stored]:
        notes.append(f"moments not in the checkpoint are zero: {', '.join(absent)}")
    notes += fill({**slots, **stored}, file, lambda name: _left_out(name, slots))
    for name, slot in stored.items():
        if name.endswith(MOMENTS[1]) and np.min(slot.variables[0]) < 0:
            raise InputError(f"{prefix}: {name}, a mean of squares, should be at least 0")
    step, note = file.step()
    if optimizer is not None:
        optimizer.iterations.assign(step)
    size, overrides = hparams.model_size, hparams.model_hparam_overrides
    notes += [*made.notes, f"nearest named size: {size}, changed in {overrides}", note]
    if unknown := sorted({*said} - _KNOWN):
        notes.append(f"not used of {described}: {', '.join(unknown)}")
    length = said.get("max_seq_length")
    return Conversion(config, hparams, vocabulary, objective, optimizer, step, notes, length)


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes `model.ckpt-STEP`, `config.json` and `vocab.txt`; returns notes."""
    config, objective, step = conversion.config, conversion.objective, conversion.step
    vocabulary = conversion.vocabulary
    fields = _config_fields(config, objective, conversion.hparams, vocabulary.size)
    slots = names.original_slots(objective)
    if conversion.optimizer is not None:
        slots |= _moments(slots, conversion.optimizer)
    tensors = {name: slot.tensor() for name, slot in slots.items()}
    tensors[GLOBAL_STEP] = np.array(step, np.int64)
    write_checkpoint(os.path.join(folder, f"model.ckpt-{step}"), tensors)
    fields["max_seq_length"] = conversion.trained_length
    fields = {name: value for name, value in fields.items() if value is not None}
    files.write_json(os.path.join(folder, CONFIG_FILE), fields)
    vocabulary.save(folder)
    notes = [f"{len(tensors)} tensors, step {step}", *model_directory.padding_notes(config)]
    if config.token_mixer == "mixed" and config.head_ratio != 2:
        notes.append(f"`head_ratio` is {config.head_ratio}; the original's code works with 2 only")
    return notes


def _read_config(path: str) -> dict[str, Any]:
    """Reads the fields that are not null."""
    fields = {k: v for k, v in translate(files.read_json(path)).items() if v is not None}
    for name, allowed in (("conv_type", tuple(_CONV_TYPES)), ("hidden_act", _ACTIVATIONS)):
        if name in fields and fields[name] not in allowed:
            expected = f"`{name}` should be one of {', '.join(allowed)}"
            raise InputError(f"{path}: {expected}. Received: {fields[name]!r}")
    return fields


def _encoder_fields(said: dict[str, Any]) -> dict[str, Any]:
    fields = {name: said[name] for name in _ENCODER_FIELDS if name in said}
    if "conv_type" in said:
        fields["token_mixer"] = _CONV_TYPES[said["conv_type"]]
    return fields


def _pretraining_fields(said: dict[str, Any], hidden_size: int) -> dict[str, Any]:
    """Returns fields of PretrainingHParams on the objective, its generator and training."""
    fields = {name: said[name] for name in _SETTINGS if name in said}
    share = said.get(_WIDTH, said.get(_SHARE))
    if isinstance(share, (int, float)):
        fields[_WIDTH] = share / hidden_size if share > 1 else share
    return fields


def _config_fields(
    config: EncoderConfig, objective, hparams: PretrainingHParams, pieces: int
) -> dict[str, Any]:
    """Returns the fields of `config.json`; InputError if the original has no such network.

    `pieces` is the number of tokens of the vocabulary.
    """
    generator = getattr(objective, "generator", None)
    generator = None if generator in (None, objective.encoder) else generator.config
    mixers = {mixer: conv_type for conv_type, mixer in _CONV_TYPES.items()}
    fields = {name: getattr(config, name) for name in _ENCODER_FIELDS}
    # For another mixer, `check_expressible` rejects the difference.
    fields["conv_type"] = mixers.get(config.token_mixer, "sdconv")
    unsaid = ("mask_padding", *(() if config.convolves else ("convolution", "span_kernel")))
    again = EncoderConfig(**_encoder_fields(fields))
    model_directory.check_expressible(config, again, "the original", unsaid)
    head_act = getattr(hparams.objective, "masked_lm_act", None)
    expected = {
        "hidden_act": (config.hidden_act, _ACTIVATIONS),
        "masked_lm_act": (head_act, (None, config.hidden_act)),
        "vocab_size": (config.vocab_size, (pieces,)),  # its generator would draw padding
    }
    if generator is not None:
        inner = (generator.intermediate_size, (4 * generator.hidden_size,))
        expected["generator_intermediate_size"] = inner
        fields |= {theirs: getattr(generator, ours) for theirs, ours in _GENERATOR_FIELDS.items()}
        fields[_SHARE] = generator.hidden_size / config.hidden_size
    for name, (received, allowed) in expected.items():
        if received not in allowed:
            raise InputError(
                f"the original has no such network: `{name}` should be"
                f" {' or '.join(map(str, allowed))}. Received: {received}"
            )
    # Also defaults: the objective that is read may have others.
    return fields | {k: value for k, value in hparams.as_json().items() if k in _SETTINGS}


def _find_networks(file: TensorFile, said: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Returns the names of existing networks, and matching fields of PretrainingHParams."""
    scopes = {name.split("/")[0] for name in file.shapes}
    if names.ENCODER not in scopes:
        raise InputError(
            f"{file.where}: should be ConvBERT's or ELECTRA's, whose tensors begin with"
            f" {names.ENCODER}/, or XLNet's with its xlnet_config.json beside it."
            f" Received: {next(iter(file.shapes), 'no tensor')}"
        )
    generator = any(name.startswith(f"{names.GENERATOR}/encoder/") for name in file.shapes)
    predicts, discriminates = names.MASKED_LM_HEAD in scopes, names.DISCRIMINATOR_HEAD in scopes
    if predicts and not generator and not discriminates:
        return ["encoder", "head"], {"objective": "masked_lm"}
    shown: dict[str, Any] = {}
    if discriminates or generator:
        shown["objective"] = "replaced_token_detection"
    if generator or predicts:
        shown |= {"untied_generator": generator, "uniform_generator": False}
    if generator:
        words = f"{names.GENERATOR}/embeddings/word_embeddings"
        apart = f"{names.GENERATOR}/embeddings_project/kernel" in file.shapes
        apart |= bool(said.get("disentangled_embeddings"))  # as wide as the embeddings
        shown["untied_generator_embeddings"] = words in file.shapes and not apart
        shown["disentangled_embeddings"] = words in file.shapes and apart
    networks = {"encoder": True, "head": discriminates}
    networks |= {"generator": generator or predicts, "generator_head": predicts}
    return [name for name, is_there in networks.items() if is_there], shown


def _encoder(
    file: TensorFile, said: dict[str, Any], vocab_size: int, model_size: str | None
) -> EncoderConfig:
    """Returns the encoder of the size in `config.json` or options, by default the small one."""
    if model_size is None and not said:
        raise InputError(
            "tensors do not show the number of heads: --model_size should name the size, such as"
            " convbert-small, or a config.json should be next to them"
        )
    convolves = any("/conv_attn_" in name for name in file.shapes)
    size = named_size(model_size or ("convbert-small" if convolves else "electra-small"))
    if type(size) is not EncoderConfig:
        raise InputError(f"original checkpoints of ConvBERT or ELECTRA cannot be {model_size}")
    fields = {"mask_padding": False, "vocab_size": vocab_size, **_encoder_fields(said)}
    if (rows := fields["vocab_size"]) != vocab_size:
        raise InputError(f"`vocab_size` should be {vocab_size}, as in vocab.txt. Received: {rows}")
    return size.replace(**fields)


def _moments(slots: dict[str, Slot], optimizer: AdamWeightDecay) -> dict[str, Slot]:
    """Returns the optimizer's moments under the original's names."""
    return {
        name + ending: Slot.of(moment)
        for name, slot in slots.items()
        for ending, moment in zip(MOMENTS, optimizer.slots(slot.variables[0]))
    }


def _left_out(name: str, weights: Collection[str]) -> str | None:
    """Returns the reason for leaving a tensor out, see `fill`; None for network weights."""
    if name.startswith("task_specific/"):
        return model_directory.TASK_HEAD
    if name == GLOBAL_STEP or (name.endswith(MOMENTS) and os.path.dirname(name) in weights):
        return ""
    if name.split("/")[0] not in _SCOPES or name.endswith(MOMENTS):
        return "pre-training has no such tensors"
    return None

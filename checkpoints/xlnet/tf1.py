"""The original's checkpoints of XLNet: `xlnet_config.json`, `xlnet_model.ckpt`, `spiece.model`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import files
import storage
from checkpoints.model_directory import (
    TASK_HEAD,
    Conversion,
    Options,
    check_expressible,
    check_vocabulary,
    load_vocabulary,
)
from checkpoints.tf1_file import GLOBAL_STEP, TensorFile, find_checkpoint, write_checkpoint
from checkpoints.xlnet.networks import (
    FIELDS,
    UNWEIGHTED,
    check_head_size,
    read_networks,
    tf1_slots,
    unwritten,
)
from data.vocabulary import MODEL_FILE
from errors import InputError, located
from model.config import read_fields
from model.xlnet.config import XLNetConfig

XLNET_CONFIG_FILE = "xlnet_config.json"
_HEAD = ("model/lm_loss/bias", "model/transformer/mask_emb/mask_emb")
_FIELDS = {**FIELDS, "n_token": "vocab_size"}
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}  # its code's names -> ours
# What flags say there.
_FLAGS = ("clamp_length", "hidden_dropout_prob", "attention_probs_dropout_prob")
_FLAGS += ("initializer_range",)
# Beginnings of the names of task heads. RACE's has no `model/`.
_TASKS = ("sequnece_summary", "classification_", "regression_", "start_logits", "end_logits")
_TASKS += ("answer_class",)
_TASKS = (*(f"model/{name}" for name in _TASKS), "logits/", *_TASKS)
_MOMENTS = ("/Adam", "/Adam_1", "/adam_m", "/adam_v", "beta1_power", "beta2_power")


def find_config(path: str, config: str | None) -> str | None:
    """The `xlnet_config.json` of a folder or checkpoint, or the one named; None without any."""
    folder = config or (path if storage.isdir(path) else os.path.dirname(path))
    if config is not None and os.path.basename(config) == XLNET_CONFIG_FILE:
        return config
    found = os.path.join(folder, XLNET_CONFIG_FILE)
    return found if storage.exists(found) else None


def read(path: str, options: Options) -> Conversion:
    """Reads an original checkpoint of XLNet; see `checkpoints.tf1_convert.read`."""
    prefix, notes = find_checkpoint(path)
    file, folder = TensorFile(prefix), os.path.dirname(prefix)
    config = _config(find_config(prefix, options.config))
    vocabulary = load_vocabulary(options, folder, MODEL_FILE)
    notes += check_vocabulary(vocabulary, config, folder)
    complete = all(name in file.shapes for name in _HEAD)
    conversion = read_networks(file, config, vocabulary, tf1_slots, _left_out, complete)
    conversion.step, note = file.step()
    conversion.notes[:0] = [*notes, note]
    return conversion


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes `xlnet_model.ckpt`, `xlnet_config.json` and `spiece.model`; returns notes."""
    fields, notes = _fields(conversion.config)
    slots = tf1_slots(conversion.objective.encoder, conversion.objective.head)
    tensors = {name: slot.tensor() for name, slot in slots.items()}
    tensors[GLOBAL_STEP] = np.int64(conversion.step)
    write_checkpoint(os.path.join(folder, "xlnet_model.ckpt"), tensors)
    files.write_json(os.path.join(folder, XLNET_CONFIG_FILE), fields)
    conversion.vocabulary.save(folder)
    return [f"{len(tensors)} tensors, step {conversion.step}", *notes, *unwritten(conversion)]


def _left_out(name: str) -> str | None:
    """See `checkpoints.slots.fill`."""
    if name.endswith(_MOMENTS):
        return "the optimizer's moments, which start afresh"
    if name in _HEAD:
        return "as the other part of the output layer is not there"
    if name.startswith(_TASKS):
        return f"as {TASK_HEAD}"
    return "" if name == GLOBAL_STEP else None


def _config(path: str) -> XLNetConfig:
    fields = read_fields(path)
    values = {ours: fields.get(theirs) for theirs, ours in _FIELDS.items()}
    if (activation := values["hidden_act"]) not in _ACTIVATIONS:
        raise InputError(
            f"{path}: `ff_activation` should be {' or '.join(_ACTIVATIONS)}. Received: {activation}"
        )
    with located(path):
        config = XLNetConfig(**{**values, "hidden_act": _ACTIVATIONS[activation]})
    check_head_size(fields.get("d_head"), config, path)
    return config


def _fields(config: XLNetConfig) -> tuple[dict[str, Any], list[str]]:
    """The fields of `xlnet_config.json`, and notes on what they do not say."""
    named = (*_FIELDS.values(), *_FLAGS, *UNWEIGHTED)
    check_expressible(config, named, {"layer_norm_eps": 1e-12}, "the original")
    activations = {ours: name for name, ours in _ACTIVATIONS.items()}
    if config.hidden_act not in activations:
        raise InputError(
            f"the original has no such XLNet: `hidden_act` should be {' or '.join(activations)}."
            f" Received: {config.hidden_act!r}"
        )
    fields = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    fields |= {"d_head": config.head_size, "ff_activation": activations[config.hidden_act]}
    if config.clamp_length <= 0:
        return fields, []
    return fields, [f"the original's flag --clamp_len should be {config.clamp_length}"]

"""The original's checkpoints of XLNet: `xlnet_config.json`, `xlnet_model.ckpt`, `spiece.model`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import files
import storage
from checkpoints.model_directory import TASK_HEAD, Conversion, Options, check_expressible
from checkpoints.slots import fill
from checkpoints.tf1_file import TensorFile, find_checkpoint, write_checkpoint
from checkpoints.xlnet import conversion as common
from checkpoints.xlnet.conversion import UNWEIGHTED
from checkpoints.xlnet.names import tf1_slots
from errors import InputError, located
from model.config import read_fields
from model.xlnet.config import XLNetConfig
from training.stored_shapes import no_larger_than

XLNET_CONFIG_FILE = "xlnet_config.json"
_PREFIX, _CHECKPOINT, _STEP = "model/transformer/", "xlnet_model.ckpt", "global_step"
_HEAD = ("model/lm_loss/bias", "model/transformer/mask_emb/mask_emb")
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}  # its code's names -> ours
# Fields of XLNetConfig: of the file, of flags there, or without weights.
_NAMED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "hidden_act")
_NAMED += ("intermediate_size", "untie_biases", "clamp_length", "hidden_dropout_prob")
_NAMED += ("attention_probs_dropout_prob", "initializer_range", *UNWEIGHTED)
# Beginnings of the names of task heads. RACE's has no `model/`.
_TASKS = ("sequnece_summary", "classification_", "regression_", "start_logits", "end_logits")
_TASKS = (*(f"model/{name}" for name in (*_TASKS, "answer_class")), "logits/", *_TASKS)
_TASKS += ("answer_class",)
_MOMENTS = ("/Adam", "/Adam_1", "/adam_m", "/adam_v")
_OPTIMIZER = ("beta1_power", "beta2_power")


def recognizes(path: str, options: Options) -> bool:
    """Whether there is an XLNet at `path`, a folder or a checkpoint without `.index`."""
    folder = path if storage.isdir(path) else os.path.dirname(path)
    if options.config is not None:
        named = os.path.basename(options.config) == XLNET_CONFIG_FILE
        return named or storage.exists(os.path.join(options.config, XLNET_CONFIG_FILE))
    return storage.exists(os.path.join(folder, XLNET_CONFIG_FILE))


def read(path: str, options: Options) -> Conversion:
    """Reads an original checkpoint of XLNet; see `checkpoints.tf1_convert.read`.

    Raises:
        InputError: no such checkpoint or configuration, one of another architecture, a damaged
            file, a tensor that is missing, has another shape or is not finite.
    """
    prefix, notes = find_checkpoint(path)
    file, folder = TensorFile(prefix), os.path.dirname(prefix)
    said = options.config or os.path.join(folder, XLNET_CONFIG_FILE)
    said = os.path.join(said, XLNET_CONFIG_FILE) if storage.isdir(said) else said
    config = _config(read_fields(said), said)
    vocabulary, about = common.load_vocabulary(options, folder, config.vocab_size)
    complete = all(name in file.shapes for name in _HEAD)
    with no_larger_than(file.shapes.values(), folder):
        conversion, head = common.build(config, vocabulary, complete)
    slots = tf1_slots(conversion.objective.encoder, head)
    left_out = fill(
        slots, file.shapes, lambda name: file.read(name, slots[name].shape), _left_out, prefix
    )
    if _STEP in file.shapes:
        conversion.step = file.read_step(_STEP)
        notes.append(f"step {conversion.step}, as {_STEP} says")
    conversion.notes[:0] = [*notes, *about, *left_out]
    return conversion


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes `xlnet_model.ckpt`, `xlnet_config.json` and `spiece.model`.

    Returns:
        Notes on what was written and what was left out.

    Raises:
        InputError: the original has no such architecture, or the folder cannot be written.
    """
    common.check_kind(conversion.vocabulary, "the model's vocabulary")
    fields, notes = _fields(conversion.config)
    slots = tf1_slots(conversion.objective.encoder, conversion.objective.head)
    tensors = {name: slot.tensor() for name, slot in slots.items()}
    tensors[_STEP] = np.int64(conversion.step)
    write_checkpoint(os.path.join(folder, _CHECKPOINT), tensors)
    files.write_json(os.path.join(folder, XLNET_CONFIG_FILE), fields)
    conversion.vocabulary.save(folder)
    return [
        f"{len(tensors)} tensors, step {conversion.step}",
        *notes,
        *common.unwritten(conversion),
    ]


def _left_out(name: str) -> str | None:
    """Why nothing takes a tensor; None where something should."""
    if name.endswith(_MOMENTS) or name in _OPTIMIZER:
        return "the optimizer's moments, which start afresh"
    if name in _HEAD:
        return "as the other part of the output layer is not there"
    if name.startswith(_TASKS):
        return f"as {TASK_HEAD}"
    return "read as the step" if name == _STEP else None


def _config(fields: dict[str, Any], path: str) -> XLNetConfig:
    """What `xlnet_config.json` says."""
    activation = fields.get("ff_activation")
    if activation not in _ACTIVATIONS:
        raise InputError(
            f"{path}: `ff_activation` should be {' or '.join(_ACTIVATIONS)}. Received: {activation}"
        )
    with located(path):
        config = XLNetConfig(
            vocab_size=fields.get("n_token"),
            hidden_size=fields.get("d_model"),
            num_hidden_layers=fields.get("n_layer"),
            num_attention_heads=fields.get("n_head"),
            intermediate_size=fields.get("d_inner"),
            hidden_act=_ACTIVATIONS[activation],
            untie_biases=fields.get("untie_r"),
        )
    common.check_head_size(fields.get("d_head"), config, path)
    return config


def _fields(config: XLNetConfig) -> tuple[dict[str, Any], list[str]]:
    """The fields of `xlnet_config.json`, and notes on what they do not say."""
    notes = []
    theirs = {ours: name for name, ours in _ACTIVATIONS.items()}
    check_expressible(config, _NAMED, {"layer_norm_eps": 1e-12}, "the original")
    if config.hidden_act not in theirs:
        raise InputError(
            f"the original has no such XLNet: `hidden_act` should be {' or '.join(theirs)}."
            f" Received: {config.hidden_act!r}"
        )
    if config.clamp_length > 0:
        notes.append(f"the original's flag --clamp_len should be {config.clamp_length}")
    fields = {
        "d_head": config.head_size,
        "d_inner": config.intermediate_size,
        "d_model": config.hidden_size,
        "ff_activation": theirs[config.hidden_act],
        "n_head": config.num_attention_heads,
        "n_layer": config.num_hidden_layers,
        "n_token": config.vocab_size,
        "untie_r": config.untie_biases,
    }
    return fields, notes

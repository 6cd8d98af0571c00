"""Hugging Face's XLNet: `config.json`, safetensors and `spiece.model`, both directions."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import files
import storage
from checkpoints.huggingface.config import TIED
from checkpoints.huggingface.names import UNTIED
from checkpoints.huggingface.tensors import WEIGHTS_FILE, TensorFiles, write_tensors
from checkpoints.model_directory import TASK_HEAD, Conversion, Options, check_expressible
from checkpoints.slots import fill
from checkpoints.xlnet import conversion as common
from checkpoints.xlnet.names import huggingface_slots
from data.sentencepiece_model import MODEL_FILE
from data.vocabulary import SWITCHES_FILE, Vocabulary
from errors import InputError, located
from files import write_json
from model.config import CONFIG_FILE, read_fields
from model.xlnet.config import XLNetConfig
from training.stored_shapes import no_larger_than

MODEL_TYPE = "xlnet"
_PREFIX = "transformer."
_HEAD = ("lm_loss.bias", "mask_emb")
_WORDS = "word_embedding.weight"
# Theirs, with transformers' defaults, and our names.
_FIELDS = {
    "vocab_size": ("vocab_size", 32000),
    "d_model": ("hidden_size", 1024),
    "n_layer": ("num_hidden_layers", 24),
    "n_head": ("num_attention_heads", 16),
    "d_inner": ("intermediate_size", 4096),
    "ff_activation": ("hidden_act", "gelu"),
    "dropout": ("hidden_dropout_prob", 0.1),
    "initializer_range": ("initializer_range", 0.02),
    "layer_norm_eps": ("layer_norm_eps", 1e-12),
    "clamp_len": ("clamp_length", -1),
    "untie_r": ("untie_biases", True),
}
# Settings that change what is computed, with the only values that are computed here.
_FIXED: dict[str, tuple[Any, ...]] = {
    "attn_type": ("bi",),
    "bi_data": (False,),
    "same_length": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
_MEMORY = ("mem_len", "reuse_len", "use_mems_eval", "use_mems_train")
_DESCRIBING = ("model_type", "architectures", "transformers_version", "dtype", "torch_dtype")
_DESCRIBING += ("d_head", "n_token")
_TASKS = ("sequence_summary.", "logits_proj.", "qa_outputs.", "start_logits.", "end_logits.")
_TASKS += ("answer_class.", "classifier.")
_SPECIAL = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "<sep>", "pad": "<pad>"}
_SPECIAL |= {"cls": "<cls>", "mask": "<mask>"}


def recognizes(path: str, options: Options) -> bool:
    """Whether a folder's `config.json`, or the one of the options, is an XLNet's."""
    config = options.config or os.path.join(path, CONFIG_FILE)
    return storage.isfile(config) and files.read_json(config).get("model_type") == MODEL_TYPE


def read(path: str, options: Options) -> Conversion:
    """Reads an XLNet, with its output layer if there is one; see `checkpoints.huggingface.read`.

    Raises:
        InputError: a file is missing, damaged or describes something that does not exist here.
    """
    described = options.config or os.path.join(path, CONFIG_FILE)
    config, notes = _config(read_fields(described), described)
    tensors = TensorFiles(path)
    notes += [f"{path}: {note}" for note in tensors.notes()]
    vocabulary, about = common.load_vocabulary(options, path, config.vocab_size)
    prefix = _PREFIX if any(name.startswith(_PREFIX) for name in tensors.shapes) else ""
    complete = all(name in tensors.shapes for name in ("lm_loss.bias", f"{prefix}mask_emb"))
    if complete and not _is_tied(tensors, prefix, read_fields(described)):
        complete = False
        notes.append(f"{path}: {UNTIED}; the encoder alone is converted")
    with no_larger_than(tensors.shapes.values(), path):
        conversion, head = common.build(config, vocabulary, complete)
    slots = huggingface_slots(conversion.objective.encoder, head, prefix)
    if not config.untie_biases:
        _check_tied(slots, tensors, path)
    left_out = fill(slots, tensors.shapes, tensors.read, lambda name: _left_out(name, prefix), path)
    conversion.notes[:0] = [*notes, *about, *left_out]
    return conversion


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes an XLNetLMHeadModel, or of an encoder alone an XLNetModel.

    Returns:
        Notes on what was written and what was left out.

    Raises:
        InputError: a file cannot be written.
    """
    config, vocabulary = conversion.config, conversion.vocabulary
    common.check_kind(vocabulary, "the model's vocabulary")
    named = {ours for ours, _ in _FIELDS.values()} | {*common.UNWEIGHTED}
    named.add("attention_probs_dropout_prob")  # a note says where it is another
    check_expressible(config, named, {}, "Hugging Face's xlnet")
    head = conversion.objective.head
    name = "XLNetModel" if head is None else "XLNetLMHeadModel"
    theirs = {their: getattr(config, our) for their, (our, _) in _FIELDS.items()}
    fixed = {field: values[0] for field, values in _FIXED.items() if field not in _UNWRITTEN}
    ids = {f"{which}_token_id": vocabulary.ids.get(_SPECIAL[which]) for which in _IDS}
    fields = {
        "architectures": [name],
        "model_type": MODEL_TYPE,
        **theirs,
        "d_head": config.head_size,
        **fixed,
        TIED: True,
        **ids,
        "mem_len": None,
        "summary_activation": "tanh",
        "summary_type": "last",
        "summary_use_proj": True,
        "dtype": "float32",
    }
    slots = huggingface_slots(conversion.objective.encoder, head, _PREFIX if head else "")
    write_json(os.path.join(folder, CONFIG_FILE), fields)
    tensors = {name: slot.tensor() for name, slot in slots.items()}
    write_tensors(os.path.join(folder, WEIGHTS_FILE), tensors)
    _write_vocabulary(vocabulary, folder)
    notes = [f"written: {name}, {len(tensors)} tensors"]
    if not config.untie_biases:
        notes.append("the biases that all layers share are written once for each of them")
    return [*notes, *common.unwritten(conversion), f"left out: the step ({conversion.step})"]


_IDS = ("bos", "eos", "pad")
_UNWRITTEN = ("pruned_heads", "quantization_config")


def _config(fields: dict[str, Any], path: str) -> tuple[XLNetConfig, list[str]]:
    """What `config.json` says, and notes on what was inferred and what was not used."""
    for name, values in _FIXED.items():
        if fields.get(name, values[0]) not in values:
            raise InputError(
                f"{path}: `{name}` should be {' or '.join(map(repr, values))}, which is all that"
                f" there is here. Received: {fields[name]!r}"
            )
    renamed = {"n_token": "vocab_size", "hidden_size": "d_model", "num_attention_heads": "n_head"}
    renamed |= {"num_hidden_layers": "n_layer"}
    fields = {**{renamed.get(name, name): value for name, value in fields.items()}}
    notes, inferred = [], {}
    values = {}
    for theirs, (ours, default) in _FIELDS.items():
        values[ours] = fields.get(theirs, default)
        if theirs not in fields and theirs != "untie_r":  # which later versions do not write
            inferred[theirs] = default
    if inferred:
        listed = ", ".join(f"{name} {value!r}" for name, value in inferred.items())
        notes.append(f"{path} leaves out what Hugging Face's defaults say: {listed}")
    if memory := {name: fields[name] for name in _MEMORY if fields.get(name)}:
        listed = ", ".join(f"{name} {value}" for name, value in memory.items())
        notes.append(f"{path}: not used, as texts have no memory here: {listed}")
    known = {*_FIELDS, *_FIXED, *_MEMORY, *_DESCRIBING, TIED}
    if unused := sorted(set(fields) - known):
        notes.append(f"{path}: not used: {', '.join(unused)}")
    if values["hidden_act"] == "gelu":
        notes.append(
            f"{path}: `ff_activation` gelu is the exact one to transformers, and here; the original"
            " code, with which released weights were trained, computes it by tanh. --config takes a"
            " copy of this file, which may say gelu_new"
        )
    values["attention_probs_dropout_prob"] = values["hidden_dropout_prob"]
    with located(path):
        config = XLNetConfig(**values)
    common.check_head_size(fields.get("d_head", config.head_size), config, path)
    return config, notes


def _is_tied(tensors: TensorFiles, prefix: str, fields: dict[str, Any]) -> bool:
    if "lm_loss.weight" not in tensors.shapes:
        return fields.get(TIED, True) is not False
    words = prefix + _WORDS
    there = words in tensors.shapes
    return there and np.array_equal(tensors.read("lm_loss.weight"), tensors.read(words))


def _left_out(name: str, prefix: str) -> str | None:
    """Why nothing takes a tensor; None where something should."""
    if name == "lm_loss.weight":
        return f"a copy of {prefix}{_WORDS}, or {UNTIED}"
    if name.removeprefix(prefix) in _HEAD:
        return "as not all of the output layer can be converted"
    return f"as {TASK_HEAD}" if name.startswith(_TASKS) else None


def _check_tied(slots, tensors: TensorFiles, path: str) -> None:
    """Raises InputError unless tensors that one variable takes are equal."""
    first = {}
    for name, slot in slots.items():
        other = first.setdefault(slot.variables[0].ref(), name)
        there = name in tensors.shapes and other in tensors.shapes
        if other != name and there and not np.array_equal(tensors.read(name), tensors.read(other)):
            raise InputError(f"{path}: {name} should be equal to {other}, as `untie_r` is false")


def _write_vocabulary(vocabulary: Vocabulary, folder: str) -> None:
    """`spiece.model`, and the switches under the names of XLNetTokenizer."""
    vocabulary.save(folder)
    path = os.path.join(folder, SWITCHES_FILE)
    assert storage.exists(os.path.join(folder, MODEL_FILE))
    switches = {
        "tokenizer_class": "XLNetTokenizer",
        "do_lower_case": vocabulary.do_lower_case,
        "keep_accents": not vocabulary.strip_accents,
        "remove_space": True,
        **{f"{which}_token": token for which, token in _SPECIAL.items()},
        "additional_special_tokens": ["<eop>", "<eod>"],
    }
    write_json(path, switches)

"""Hugging Face's XLNet: `config.json`, safetensors and `spiece.model`, both directions."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

import storage
from checkpoints.huggingface.config import TIED, read_described
from checkpoints.huggingface.names import UNTIED
from checkpoints.huggingface.tensors import WEIGHTS_FILE, TensorFiles, write_tensors
from checkpoints.model_directory import (
    TASK_HEAD,
    Conversion,
    Options,
    check_expressible,
    check_vocabulary,
    load_vocabulary,
)
from checkpoints.xlnet.networks import (
    FIELDS,
    UNWEIGHTED,
    check_head_size,
    huggingface_slots,
    read_networks,
    unwritten,
)
from data.vocabulary import MODEL_FILE, SWITCHES_FILE, Vocabulary
from errors import located
from files import read_json, write_json
from model.config import CONFIG_FILE, read_fields
from model.xlnet.config import XLNetConfig

_MODEL_TYPE = "xlnet"
_PREFIX, _WORDS = "transformer.", "word_embedding.weight"
_HEAD = ("lm_loss.bias", "mask_emb")
_FIELDS = {
    **FIELDS,
    "vocab_size": "vocab_size",
    "dropout": "hidden_dropout_prob",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
    "clamp_len": "clamp_length",
}
_DEFAULTS = (1024, 24, 16, 4096, "gelu", True, 32000, 0.1, 0.02, 1e-12, -1)  # transformers'
# Names by which transformers knows some of these, too.
_RENAMED = {"n_token": "vocab_size", "hidden_size": "d_model", "num_attention_heads": "n_head"}
_RENAMED |= {"num_hidden_layers": "n_layer"}
# Settings that change what is computed, with the only values that are computed here.
_WRITTEN = {"attn_type": "bi", "bi_data": False, "same_length": False}
_FIXED: dict[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in _WRITTEN.items()},
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
_MEMORY = ("mem_len", "reuse_len", "use_mems_eval", "use_mems_train")
_TASKS = ("sequence_summary.", "logits_proj.", "qa_outputs.", "start_logits.", "end_logits.")
_TASKS += ("answer_class.", "classifier.")
_SPECIAL = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "<sep>", "pad": "<pad>"}
_SPECIAL |= {"cls": "<cls>", "mask": "<mask>"}


def find_config(path: str, config: str | None) -> str | None:
    """The `config.json` of a folder, or the one named, where it is an XLNet's; else None."""
    found = config or os.path.join(path, CONFIG_FILE)
    is_xlnet = storage.isfile(found) and read_json(found).get("model_type") == _MODEL_TYPE
    return found if is_xlnet else None


def read(path: str, options: Options) -> Conversion:
    """Reads an XLNet, with its output layer if there is one; see `checkpoints.huggingface.read`."""
    described = options.config or os.path.join(path, CONFIG_FILE)
    fields = read_fields(described)
    config, notes = _config(fields, described)
    tensors = TensorFiles(path)
    vocabulary = load_vocabulary(options, path, MODEL_FILE)
    notes += [*tensors.notes(), *check_vocabulary(vocabulary, config, path)]
    prefix = _PREFIX if any(name.startswith(_PREFIX) for name in tensors.shapes) else ""
    complete = all(name in tensors.shapes for name in ("lm_loss.bias", f"{prefix}mask_emb"))
    if complete and not _is_tied(tensors, prefix, fields):
        complete = False
        notes.append(f"{path}: {UNTIED}; the encoder alone is converted")
    slots = functools.partial(huggingface_slots, prefix=prefix)
    left_out = functools.partial(_left_out, prefix=prefix)
    conversion = read_networks(tensors, config, vocabulary, slots, left_out, complete)
    conversion.notes[:0] = notes
    return conversion


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes an XLNetLMHeadModel, or of an encoder alone an XLNetModel; returns notes."""
    config, vocabulary = conversion.config, conversion.vocabulary
    # A note says where the rate of dropout is another.
    named = {*_FIELDS.values(), *UNWEIGHTED, "attention_probs_dropout_prob"}
    check_expressible(config, named, {}, "Hugging Face's xlnet")
    encoder, head = conversion.objective.encoder, conversion.objective.head
    name = "XLNetModel" if head is None else "XLNetLMHeadModel"
    fields = {
        "architectures": [name],
        "model_type": _MODEL_TYPE,
        **{theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()},
        "d_head": config.head_size,
        **_WRITTEN,
        TIED: True,
        **{f"{n}_token_id": vocabulary.ids.get(_SPECIAL[n]) for n in ("bos", "eos", "pad")},
        "mem_len": None,
        "summary_activation": "tanh",
        "summary_type": "last",
        "summary_use_proj": True,
        "dtype": "float32",
    }
    slots = huggingface_slots(encoder, head, _PREFIX if head else "")
    write_json(os.path.join(folder, CONFIG_FILE), fields)
    tensors = {name: slot.tensor() for name, slot in slots.items()}
    write_tensors(os.path.join(folder, WEIGHTS_FILE), tensors)
    _write_vocabulary(vocabulary, folder)
    notes = [f"written: {name}, {len(tensors)} tensors"]
    if not config.untie_biases:
        notes.append("the biases that all layers share are written once for each of them")
    return [*notes, *unwritten(conversion), f"left out: the step ({conversion.step})"]


def _config(fields: dict[str, Any], path: str) -> tuple[XLNetConfig, list[str]]:
    """What `config.json` says, and notes on what was inferred and what was not used."""
    fields = {_RENAMED.get(name, name): value for name, value in fields.items()}
    fields.setdefault("untie_r", True)  # which later versions do not write
    defaults = dict(zip(_FIELDS, _DEFAULTS, strict=True))
    known = (*_MEMORY, "d_head")
    values, notes = read_described(fields, defaults, _FIXED, path, known)
    if memory := [f"{name} {fields[name]}" for name in _MEMORY if fields.get(name)]:
        notes.append(f"{path}: not used, as texts have no memory here: {', '.join(memory)}")
    if values["ff_activation"] == "gelu":
        notes.append(
            f"{path}: `ff_activation` gelu is the exact one to transformers, and here; the original"
            " code, with which released weights were trained, computes it by tanh. --config takes a"
            " copy of this file, which may say gelu_new"
        )
    ours = {ours: values[theirs] for theirs, ours in _FIELDS.items()}
    with located(path):
        config = XLNetConfig(**ours, attention_probs_dropout_prob=values["dropout"])
    check_head_size(fields.get("d_head", config.head_size), config, path)
    return config, notes


def _is_tied(tensors: TensorFiles, prefix: str, fields: dict[str, Any]) -> bool:
    if "lm_loss.weight" not in tensors.shapes:
        return fields.get(TIED, True) is not False
    words = prefix + _WORDS
    there = words in tensors.shapes
    return there and np.array_equal(tensors.read("lm_loss.weight"), tensors.read(words))


def _left_out(name: str, prefix: str) -> str | None:
    """See `checkpoints.slots.fill`."""
    if name == "lm_loss.weight":
        return f"a copy of {prefix}{_WORDS}, or {UNTIED}"
    if name.removeprefix(prefix) in _HEAD:
        return "as not all of the output layer can be converted"
    return f"as {TASK_HEAD}" if name.startswith(_TASKS) else None


def _write_vocabulary(vocabulary: Vocabulary, folder: str) -> None:
    """`spiece.model`, and the switches under the names of XLNetTokenizer."""
    vocabulary.save(folder)
    switches = {
        "tokenizer_class": "XLNetTokenizer",
        "do_lower_case": vocabulary.do_lower_case,
        "keep_accents": not vocabulary.strip_accents,
        "remove_space": True,
        **{f"{which}_token": token for which, token in _SPECIAL.items()},
        "additional_special_tokens": ["<eop>", "<eod>"],
    }
    write_json(os.path.join(folder, SWITCHES_FILE), switches)

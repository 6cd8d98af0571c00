"""Conversion of XLNet from and to the original TensorFlow 1 code (`tf1`) and Hugging Face."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from convbert.checkpoints import model_directory, names
from convbert.checkpoints.huggingface.config import TIED, UNTIED, read_described
from convbert.checkpoints.huggingface.tensors import WEIGHTS_FILE, TensorFiles, write_tensors
from convbert.checkpoints.model_directory import Conversion, Options
from convbert.checkpoints.slots import fill
from convbert.checkpoints.tf1_file import GLOBAL_STEP, TensorFile, find_checkpoint, write_checkpoint
from convbert.common import storage
from convbert.common.errors import InputError, located
from convbert.common.files import read_json, write_json
from convbert.data.vocabulary import MODEL_FILE, SWITCHES_FILE
from convbert.model.config import CONFIG_FILE
from convbert.model.xlnet.config import XLNetConfig

_VALUES = {"objective": "permutation_lm"}
# Fields of both formats, and ours.
_FIELDS = {
    "d_model": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "d_inner": "intermediate_size",
    "ff_activation": "hidden_act",
}
_UNWEIGHTED = ("max_position_embeddings", "type_vocab_size")  # fields that no weights depend on

# The original's.
_TF1_CONFIG = "xlnet_config.json"
_TF1_FIELDS = {**_FIELDS, "n_token": "vocab_size"}
_TF1_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}  # its code's names -> ours
# Flags of the original code.
_TF1_FLAGS = ("hidden_dropout_prob", "initializer_range", "attention_probs_dropout_prob")
_TF1_MOMENTS = ("/Adam", "/Adam_1", "/adam_m", "/adam_v", "beta1_power", "beta2_power")

# Hugging Face's.
_MODEL_TYPE = "xlnet"
_PREFIX, _HEAD, _COPY = "transformer.", ("lm_loss.bias", "mask_emb"), "lm_loss.weight"
_THEIR_FIELDS = {
    **_FIELDS,
    "vocab_size": "vocab_size",
    "dropout": "hidden_dropout_prob",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
}
_DEFAULTS = (1024, 24, 16, 4096, "gelu", 32000, 0.1, 0.02, 1e-12)  # transformers'
# Settings that change the computation, with the only supported values.
_WRITTEN = {"attn_type": "bi", "bi_data": False, "same_length": False}
_WRITTEN |= {"clamp_len": -1, "untie_r": True}
_FIXED: dict[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in _WRITTEN.items()},
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
_SPECIAL = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "<sep>", "pad": "<pad>"}
_SPECIAL |= {"cls": "<cls>", "mask": "<mask>"}


def is_tf1(path: str) -> bool:
    """Returns True if an `xlnet_config.json` is in the folder or next to the checkpoint."""
    folder = path if storage.isdir(path) else os.path.dirname(path)
    return storage.exists(os.path.join(folder, _TF1_CONFIG))


def read_tf1(path: str, options: Options) -> Conversion:
    """Reads an original checkpoint; see `checkpoints.tf1.read`."""
    prefix, notes = find_checkpoint(path)
    file, folder = TensorFile(prefix), os.path.dirname(prefix)
    described = os.path.join(folder, _TF1_CONFIG)
    config = _tf1_config(read_json(described), described)
    vocabulary = model_directory.load_vocabulary(options, folder, MODEL_FILE)
    notes += model_directory.check_vocabulary(vocabulary, config, folder)
    there = ["encoder", "head"] if {*names.XLNET_HEAD} <= {*file.shapes} else ["encoder"]
    conversion = model_directory.build(config, vocabulary, _VALUES, there, prefix)
    slots = names.original_xlnet(conversion.objective.encoder, conversion.objective.head)
    conversion.step, note = file.step()
    conversion.notes[:0] = [*notes, note, *fill(slots, file, _left_out_of_tf1)]
    return conversion


def write_tf1(conversion: Conversion, folder: str) -> list[str]:
    """Writes `xlnet_model.ckpt`, `xlnet_config.json` and `spiece.model`; returns notes."""
    config, objective = conversion.config, conversion.objective
    fields = {theirs: getattr(config, ours) for theirs, ours in _TF1_FIELDS.items()}
    activations = {ours: name for name, ours in _TF1_ACTIVATIONS.items()}
    fields["ff_activation"] = activations.get(config.hidden_act, "gelu")
    fields |= {"d_head": config.head_size, "untie_r": True}
    unsaid = (*_TF1_FLAGS, *_UNWEIGHTED)
    again = _tf1_config(fields, _TF1_CONFIG)
    model_directory.check_expressible(config, again, "the original", unsaid)
    slots = names.original_xlnet(objective.encoder, objective.head)
    tensors = {name: slot.tensor() for name, slot in slots.items()}
    tensors[GLOBAL_STEP] = np.array(conversion.step, np.int64)
    write_checkpoint(os.path.join(folder, "xlnet_model.ckpt"), tensors)
    write_json(os.path.join(folder, _TF1_CONFIG), fields)
    conversion.vocabulary.save(folder)
    return [f"{len(tensors)} tensors, step {conversion.step}", *_notes(conversion)]


def read_huggingface(path: str, options: Options) -> Conversion:
    """Reads an XLNet, with its output layer if there is one; see `checkpoints.huggingface.read`."""
    described = os.path.join(path, CONFIG_FILE)
    fields = read_json(described)
    config, notes = _huggingface_config(fields, described)
    tensors = TensorFiles(path)
    vocabulary = model_directory.load_vocabulary(options, path, MODEL_FILE)
    notes += [*tensors.notes(), *model_directory.check_vocabulary(vocabulary, config, path)]
    prefix = _PREFIX if any(name.startswith(_PREFIX) for name in tensors.shapes) else ""
    head, words = (_HEAD[0], prefix + _HEAD[1]), prefix + names.XLNET_WORDS
    complete, is_tied = {*head} <= {*tensors.shapes}, tensors.tied({_COPY: words}, fields)
    if complete and not is_tied:
        notes.append(f"{path}: {UNTIED}; the encoder alone is converted")
    there = ["encoder", "head"] if complete and is_tied else ["encoder"]
    conversion = model_directory.build(config, vocabulary, _VALUES, there, path)

    def left_out(name: str) -> str | None:
        if name == _COPY:
            return f"a copy of {words}, or {UNTIED}"
        if name in head:
            return "as not all of the output layer can be converted"
        beside = prefix and not name.startswith(prefix)
        return f"beside the encoder, as {model_directory.TASK_HEAD}" if beside else None

    found = conversion.objective
    slots = names.huggingface_xlnet(found.encoder, found.head, prefix)
    conversion.notes[:0] = [*notes, *fill(slots, tensors, left_out)]
    return conversion


def write_huggingface(conversion: Conversion, folder: str) -> list[str]:
    """Writes an XLNetLMHeadModel, or an XLNetModel for an encoder alone; returns notes."""
    config, vocabulary = conversion.config, conversion.vocabulary
    encoder, head = conversion.objective.encoder, conversion.objective.head
    name = "XLNetModel" if head is None else "XLNetLMHeadModel"
    fields = {
        "architectures": [name],
        "model_type": _MODEL_TYPE,
        **{theirs: getattr(config, ours) for theirs, ours in _THEIR_FIELDS.items()},
        "d_head": config.head_size,
        **_WRITTEN,
        TIED: True,
        **{f"{n}_token_id": vocabulary.ids.get(_SPECIAL[n]) for n in ("bos", "eos", "pad")},
        "mem_len": None,
        "dtype": "float32",
    }
    # A note reports a different dropout rate.
    unsaid = (*_UNWEIGHTED, "attention_probs_dropout_prob")
    again, _ = _huggingface_config(fields, CONFIG_FILE)
    model_directory.check_expressible(config, again, "Hugging Face's xlnet", unsaid)
    slots = names.huggingface_xlnet(encoder, head, _PREFIX if head else "")
    write_json(os.path.join(folder, CONFIG_FILE), fields)
    write_tensors(os.path.join(folder, WEIGHTS_FILE), slots)
    vocabulary.save(folder)
    switches = {
        "tokenizer_class": "XLNetTokenizer",
        "do_lower_case": vocabulary.do_lower_case,
        "keep_accents": not vocabulary.strip_accents,
        "remove_space": True,
        **{f"{which}_token": token for which, token in _SPECIAL.items()},
        "additional_special_tokens": ["<eop>", "<eod>"],
        **({"model_max_length": of} if (of := conversion.trained_length) else {}),
    }
    write_json(os.path.join(folder, SWITCHES_FILE), switches)
    step = f"the step ({conversion.step})"
    return [f"written: {name}, {len(slots)} tensors", *_notes(conversion, step)]


def _left_out_of_tf1(name: str) -> str | None:
    """Returns the reason for leaving a tensor out, see `checkpoints.slots.fill`."""
    if name.endswith(_TF1_MOMENTS):
        return "the optimizer's moments, which start afresh"
    if name in names.XLNET_HEAD:
        return "as the other part of the output layer is missing"
    if name.startswith(("model/transformer/", "model/lm_loss/")):
        return None
    return "" if name == GLOBAL_STEP else f"beside the encoder, as {model_directory.TASK_HEAD}"


def _tf1_config(fields: dict[str, Any], path: str) -> XLNetConfig:
    values: dict[str, Any] = {ours: fields.get(name) for name, ours in _TF1_FIELDS.items()}
    if (activation := values["hidden_act"]) not in _TF1_ACTIVATIONS:
        expected = f"`ff_activation` should be {' or '.join(_TF1_ACTIVATIONS)}"
        raise InputError(f"{path}: {expected}. Received: {activation}")
    if fields.get("untie_r") is not True:
        raise InputError(f"{path}: `untie_r` should be true, biases of each layer")
    with located(path):
        return XLNetConfig(**{**values, "hidden_act": _TF1_ACTIVATIONS[activation]})


def _huggingface_config(fields: dict[str, Any], path: str) -> tuple[XLNetConfig, list[str]]:
    """Returns the XLNetConfig of transformers' `config.json`, and notes on its fields."""
    defaults = dict(zip(_THEIR_FIELDS, _DEFAULTS, strict=True))
    values, notes = read_described(fields, defaults, _FIXED, path)
    if values["ff_activation"] == "gelu":
        notes.append(
            f"{path}: `ff_activation` gelu is exact in transformers and here; the original code,"
            " which trained the released weights, computes it by tanh: gelu_new"
        )
    ours = {ours: values[theirs] for theirs, ours in _THEIR_FIELDS.items()}
    with located(path):
        return XLNetConfig(**ours, attention_probs_dropout_prob=values["dropout"]), notes


def _notes(conversion: Conversion, *others: str) -> list[str]:
    """Returns notes on values that neither format supports, and on `others`."""
    notes = [model_directory.unwritten(conversion, *others)]
    config = conversion.config
    if conversion.objective.head is None:
        notes.append("left out, as the model has no such head: mask_emb and the output layer")
    for name in _UNWEIGHTED:
        if (value := getattr(config, name)) != (default := getattr(XLNetConfig, name)):
            notes.append(f"`{name}` is {value}, which is left out; reading gives {default}")
    if config.hidden_dropout_prob != config.attention_probs_dropout_prob:
        notes.append(
            f"`dropout` there is {config.hidden_dropout_prob}, also of attention probabilities,"
            f" where it is {config.attention_probs_dropout_prob} here; it matters in training only"
        )
    return notes

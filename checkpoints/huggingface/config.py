"""Hugging Face's `config.json` of ConvBERT, ELECTRA and BERT, and our EncoderConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convbert.checkpoints.model_directory import check_expressible
from convbert.common.errors import InputError, located
from convbert.model import EncoderConfig
from convbert.model.config import ACTIVATIONS

_SAME_NAME = {  # common fields, with their defaults for BERT and ConvBERT
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# Defaults of fields that `config.json` leaves out: those of ConvBertConfig, ElectraConfig and
# BertConfig.
_CONVBERT = {"embedding_size": 768, "head_ratio": 2, "conv_kernel_size": 9, "num_groups": 1}
_ELECTRA = {"embedding_size": 128, "hidden_size": 256}
_ELECTRA |= {"num_attention_heads": 4, "intermediate_size": 1024}
DEFAULTS: dict[str, dict[str, Any]] = {
    "convbert": {**_SAME_NAME, **_CONVBERT},
    "electra": {**_SAME_NAME, **_ELECTRA},
    "bert": _SAME_NAME,
}
# Their names of activations, and ours.
_ACTIVATIONS = {name: name for name in ACTIVATIONS}
_ACTIVATIONS |= {"gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_new", "swish": "silu"}
# Settings that change the computation, with the only values that our encoder supports.
_FIXED: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "auto_map": (None,),  # custom model code
    "hidden_act": tuple(_ACTIVATIONS),
}
HEAD_ACT = "gelu"  # for masked-LM heads of ConvBERT and ELECTRA, with any `hidden_act`
TIED = "tie_word_embeddings"  # if false, the masked-LM head is left out
UNTIED = "an output layer that does not share the word embeddings, which is not supported"
_DESCRIBING = {"model_type", "architectures", "transformers_version", "dtype", "torch_dtype", TIED}
_DESCRIBING |= {"id2label", "label2id", "problem_type"}  # read with --task


def read_described(
    fields: Mapping[str, Any],
    defaults: Mapping[str, Any],
    fixed: Mapping[str, tuple[Any, ...]],
    path: str,
) -> tuple[dict[str, Any], list[str]]:
    """Returns values of the fields in `defaults`, and notes on inferred or unused fields.

    `fixed` maps fields to their allowed values, the default first.
    """
    for name, allowed in fixed.items():
        if (received := fields.get(name, allowed[0])) not in allowed:
            expected = f"`{name}` should be {' or '.join(map(repr, allowed))}"
            raise InputError(f"{path}: {expected}. Received: {received!r}")
    notes = []
    if inferred := [f"{n} {value!r}" for n, value in defaults.items() if n not in fields]:
        listed = ", ".join(inferred)
        notes.append(f"{path} leaves out, as in Hugging Face's defaults: {listed}")
    if unused := sorted({*fields} - {*defaults, *fixed, *_DESCRIBING}):
        notes.append(f"{path}: not used: {', '.join(unused)}")
    return {name: fields.get(name, default) for name, default in defaults.items()}, notes


def encoder_config(fields: dict[str, Any], path: str) -> tuple[EncoderConfig, list[str]]:
    """Returns the encoder that a `config.json` describes, and notes on inferred or unused fields.

    `mask_padding` is False, as padding enters Hugging Face's convolution.
    """
    model_type = fields.get("model_type")
    if not isinstance(model_type, str) or model_type not in DEFAULTS:
        expected = f"`model_type` should be {', '.join(DEFAULTS)}, modernbert or xlnet"
        raise InputError(f"{path}: {expected}. Received: {model_type!r}")
    values, notes = read_described(fields, DEFAULTS[model_type], _FIXED, path)
    values["hidden_act"] = _ACTIVATIONS[values["hidden_act"]]
    with located(path):
        if model_type == "convbert":
            return _mixed(values, path, notes), notes
        values = {"embedding_size": values["hidden_size"], "head_ratio": 1, **values}
        return EncoderConfig(**values, token_mixer="attention", mask_padding=False), notes


def _mixed(values: dict[str, Any], path: str, notes: list[str]) -> EncoderConfig:
    """Returns ConvBERT's configuration, with `head_ratio` 2 for any ratio of Hugging Face's.

    Its N' = max(1, N // head_ratio) heads have width D / (2 N') (ConvBertSelfAttention), the
    paper's D / N: the same only for a ratio of 2. With 2 N' heads and a ratio of 2, number and
    width of our heads are equal to theirs.
    """
    groups, ratio = values.pop("num_groups"), values["head_ratio"]
    config = EncoderConfig(**{**values, "head_ratio": 1}, linear_groups=groups, mask_padding=False)
    if not isinstance(ratio, int) or ratio < 1:
        raise InputError(f"`head_ratio` should be an integer of at least 1. Received: {ratio!r}")
    heads = 2 * max(1, config.num_attention_heads // ratio)
    if (heads, 2) != (config.num_attention_heads, ratio):
        given = f"num_attention_heads {config.num_attention_heads} with head_ratio {ratio}"
        notes.append(f"{path}: {given} is read as {heads} with 2, which computes the same")
    return config.replace(num_attention_heads=heads, head_ratio=2)


def model_type_of(config: EncoderConfig, bert: bool) -> str:
    """Returns Hugging Face's type of an encoder; `bert` if its pre-training is BERT's."""
    if config.convolves:
        return "convbert"
    return "bert" if bert and config.embedding_size == config.hidden_size else "electra"


def huggingface_fields(config: EncoderConfig, model_type: str) -> dict[str, Any]:
    """Returns the fields of `config.json`; InputError names a field that cannot be expressed."""
    ours = {"num_groups": "linear_groups"}
    fields = {name: getattr(config, ours.get(name, name)) for name in DEFAULTS[model_type]}
    fixed = {"is_decoder": False, TIED: True, "dtype": "float32"}
    fields = {"model_type": model_type, **fields, **fixed}
    unsaid = ["mask_padding"]
    if model_type != "convbert":  # it has no convolution
        unsaid += ["convolution", "span_kernel", "conv_kernel_size"]
    again, _ = encoder_config(fields, f"Hugging Face's {model_type}")
    check_expressible(config, again, f"Hugging Face's {model_type}", unsaid)
    return fields

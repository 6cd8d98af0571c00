"""Hugging Face's names of weights, and our variables.

The `*_slots` functions are the whole correspondence, by structure; reading and writing both go
through such a dict.
"""

from __future__ import annotations

import tf_keras

from checkpoints.model_directory import TASK_HEAD
from checkpoints.slots import Slot, check_named
from checkpoints.tf1 import TABLES, encoder_layers
from model import DiscriminatorHead, Encoder, MaskedLMHead
from model.layers import GroupedDense, LayerNorm
from model.token_mixing import SpanKey

WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
EMBEDDINGS = (
    *(f"embeddings.{name}.weight" for name in TABLES),
    *("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"),
)
# What is called otherwise than in the original, in this order.
_RENAMED = {
    "/": ".",
    "layer_": "layer.",
    "g_dense": "dense",
    "conv_attn_key": "key_conv_attn_layer",
    "conv_attn_kernel": "conv_kernel_layer",
    "conv_attn_point": "conv_out_layer",
}
DISCRIMINATOR_HEAD = "discriminator_predictions"
MASKED_LM_HEADS = {
    "convbert": "generator_predictions",
    "electra": "generator_predictions",
    "bert": "cls.predictions",
}
OUTPUT_SCOPES = ("generator_predictions.", "generator_lm_head.", "cls.predictions.")
# Files may hold these too: copies of tensors that the output layer shares. {encoder} is the
# encoder's prefix.
COPIES = {
    "generator_lm_head.weight": "{encoder}" + WORD_EMBEDDINGS,
    "cls.predictions.decoder.weight": "{encoder}" + WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
UNTIED = "an output layer that does not share the word embeddings, as all do here"
_TASK_HEAD = f"{TASK_HEAD}, unless --task says which task it is"
# Beginnings of names that nothing here takes, after the encoder's prefix, and why.
LEFT_OUT = {
    "embeddings.position_ids": "the numbers of the positions, not learned",
    "embeddings.token_type_ids": "zeros, not learned",
    "pooler.": "a layer on the first token's state, which encoders do not have here",
    "cls.seq_relationship.": "the head of next-sentence prediction, which is not learned here",
    "classifier.": _TASK_HEAD,
    "qa_outputs.": _TASK_HEAD,
    "sequence_summary.": _TASK_HEAD,
}


_MATRIX = (1, 0)  # torch's linear layers hold [out, in]


def encoder_slots(encoder: Encoder, prefix: str) -> dict[str, Slot]:
    """Names of an encoder; `prefix` is such as "electra.", or empty where it is saved by itself."""
    slots = {
        f"embeddings.{name}.weight": Slot.of(getattr(encoder.embeddings, name)) for name in TABLES
    }
    for name, layer in encoder_layers(encoder).items():
        for original, theirs in _RENAMED.items():
            name = name.replace(original, theirs)
        slots |= layer_slots(name, layer)
    return {prefix + name: slot for name, slot in slots.items()}


def masked_lm_slots(head: MaskedLMHead, model_type: str) -> dict[str, Slot]:
    """Names of a masked-LM head's own variables (not the tied embeddings)."""
    scope = MASKED_LM_HEADS[model_type]
    if model_type == "bert":
        dense, bias = f"{scope}.transform", f"{scope}.bias"
    else:
        dense, bias = scope, "generator_lm_head.bias"
    slots = {
        **layer_slots(f"{dense}.dense", head.transform),
        **layer_slots(f"{dense}.LayerNorm", head.norm),
        bias: Slot.of(head.output_bias),
    }
    return _checked(head, slots, head.embeddings.variables)


def discriminator_slots(head: DiscriminatorHead) -> dict[str, Slot]:
    """Names of a discriminator head, under ELECTRA's names."""
    slots = {
        **layer_slots(f"{DISCRIMINATOR_HEAD}.dense", head.transform),
        **layer_slots(f"{DISCRIMINATOR_HEAD}.dense_prediction", head.logit),
    }
    return _checked(head, slots)


def _checked(head: tf_keras.layers.Layer, slots: dict[str, Slot], shared=()) -> dict[str, Slot]:
    check_named(head, [*shared, *(slot.variables[0] for slot in slots.values())])
    return slots


def current_name(name: str) -> str:
    """The name of today for a layer norm's weights under TensorFlow's names, as in old files."""
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def layer_slots(scope: str, layer: tf_keras.layers.Layer) -> dict[str, Slot]:
    """Names of one layer's weights."""
    if isinstance(layer, LayerNorm):
        slots = {"weight": Slot.of(layer.gamma), "bias": Slot.of(layer.beta)}
    elif isinstance(layer, SpanKey):
        slots = {
            "depthwise.weight": Slot.of(layer.depthwise_kernel, (1, 2, 0)),  # to [D, 1, K]
            "pointwise.weight": Slot.of(layer.pointwise_kernel, (2, 1, 0)),  # to [A, D, 1]
            "bias": Slot((layer.bias,), (*layer.bias.shape, 1)),  # [A] -> [A, 1]
        }
    else:  # Dense or GroupedDense
        axes = None if isinstance(layer, GroupedDense) else _MATRIX
        slots = {"weight": Slot.of(layer.kernel, axes), "bias": Slot.of(layer.bias)}
    return {f"{scope}.{name}": slot for name, slot in slots.items()}

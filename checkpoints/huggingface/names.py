"""Hugging Face's names of weights, and our variables.

`model_slots` is the whole correspondence, by structure, but for heads of tasks (task_heads.py).
"""

from __future__ import annotations

import tf_keras

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
TASK_HEADS = ("classifier.", "qa_outputs.", "sequence_summary.")
# Beginnings of names that nothing here takes, after the encoder's prefix, and why.
LEFT_OUT = {
    "embeddings.position_ids": "the numbers of the positions, not learned",
    "embeddings.token_type_ids": "zeros, not learned",
    "pooler.": "a layer on the first token's state, which encoders do not have here",
    "cls.seq_relationship.": "the head of next-sentence prediction, which is not learned here",
}
_MATRIX = (1, 0)  # torch's linear layers hold [out, in]


def model_slots(
    encoder: Encoder, head: DiscriminatorHead | MaskedLMHead | None, prefix: str, model_type: str
) -> dict[str, Slot]:
    """Names of an encoder and its head of pre-training; see `encoder_slots`, `head_slots`."""
    return {**encoder_slots(encoder, prefix), **head_slots(head, model_type)}


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


def head_slots(head: DiscriminatorHead | MaskedLMHead | None, model_type: str) -> dict[str, Slot]:
    """Names of a head's own variables (not the tied embeddings).

    A discriminator's are ELECTRA's, whatever the type.
    """
    if head is None:
        return {}
    shared = []
    if isinstance(head, DiscriminatorHead):
        slots = {
            **layer_slots(f"{DISCRIMINATOR_HEAD}.dense", head.transform),
            **layer_slots(f"{DISCRIMINATOR_HEAD}.dense_prediction", head.logit),
        }
    else:
        scope, bias = MASKED_LM_HEADS[model_type], "generator_lm_head.bias"
        if model_type == "bert":
            scope, bias = f"{scope}.transform", f"{scope}.bias"
        slots = {
            **layer_slots(f"{scope}.dense", head.transform),
            **layer_slots(f"{scope}.LayerNorm", head.norm),
            bias: Slot.of(head.output_bias),
        }
        shared = head.embeddings.variables
    check_named(head, [*shared, *(slot.variables[0] for slot in slots.values())])
    return slots


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

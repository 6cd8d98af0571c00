"""Hugging Face's names of weights, and our variables.

The `*_slots` functions are the whole correspondence, by structure; reading and writing both go
through such a dict.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
import tf_keras

from checkpoints.model_directory import TASK_HEAD
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
# Files may hold these too: copies of tensors that the output layer shares. {encoder} is the
# encoder's prefix.
COPIES = {
    "generator_lm_head.weight": "{encoder}" + WORD_EMBEDDINGS,
    "cls.predictions.decoder.weight": "{encoder}" + WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
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


@dataclasses.dataclass(frozen=True)
class Slot:
    """A variable and how Hugging Face stores it.

    Attributes:
        variable: ours.
        axes: our axes in the order of theirs; None leaves them as they are.
        column: whether theirs has one more axis at the end, of length 1.
    """

    variable: tf.Variable
    axes: tuple[int, ...] | None = None
    column: bool = False

    @property
    def shape(self) -> list[int]:
        """The shape of their tensor."""
        shape = self.variable.shape.as_list()
        shape = shape if self.axes is None else [shape[axis] for axis in self.axes]
        return [*shape, 1] if self.column else shape

    def assign(self, tensor: np.ndarray) -> None:
        """Takes their tensor, of `shape`."""
        tensor = tensor[..., 0] if self.column else tensor
        if self.axes is not None:
            tensor = np.transpose(tensor, np.argsort(self.axes))
        self.variable.assign(tensor)

    def tensor(self) -> np.ndarray:
        """Their tensor, contiguous."""
        tensor = self.variable.numpy()
        if self.axes is not None:
            tensor = np.transpose(tensor, self.axes)
        return np.ascontiguousarray(tensor[..., None] if self.column else tensor)


_MATRIX = (1, 0)  # torch's linear layers hold [out, in]


def encoder_slots(encoder: Encoder, prefix: str) -> dict[str, Slot]:
    """Names of an encoder; `prefix` is such as "electra.", or empty where it is saved by itself."""
    slots = {
        f"embeddings.{name}.weight": Slot(getattr(encoder.embeddings, name)) for name in TABLES
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
    return {
        **layer_slots(f"{dense}.dense", head.transform),
        **layer_slots(f"{dense}.LayerNorm", head.norm),
        bias: Slot(head.output_bias),
    }


def discriminator_slots(head: DiscriminatorHead) -> dict[str, Slot]:
    """Names of a discriminator head, under ELECTRA's names."""
    return {
        **layer_slots(f"{DISCRIMINATOR_HEAD}.dense", head.transform),
        **layer_slots(f"{DISCRIMINATOR_HEAD}.dense_prediction", head.logit),
    }


def current_name(name: str) -> str:
    """The name of today for a layer norm's weights under TensorFlow's names, as in old files."""
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def layer_slots(scope: str, layer: tf_keras.layers.Layer) -> dict[str, Slot]:
    """Names of one layer's weights."""
    if isinstance(layer, LayerNorm):
        slots = {"weight": Slot(layer.gamma), "bias": Slot(layer.beta)}
    elif isinstance(layer, SpanKey):
        slots = {
            "depthwise.weight": Slot(layer.depthwise_kernel, (1, 2, 0)),  # [K, D, 1] -> [D, 1, K]
            "pointwise.weight": Slot(layer.pointwise_kernel, (2, 1, 0)),  # [1, D, A] -> [A, D, 1]
            "bias": Slot(layer.bias, column=True),  # [A] -> [A, 1]
        }
    else:  # Dense or GroupedDense
        axes = None if isinstance(layer, GroupedDense) else _MATRIX
        slots = {"weight": Slot(layer.kernel, axes), "bias": Slot(layer.bias)}
    return {f"{scope}.{name}": slot for name, slot in slots.items()}

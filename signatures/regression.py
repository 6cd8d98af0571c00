"""Texts and pairs of texts to scores."""

from __future__ import annotations

import tensorflow as tf

from signatures.classification import text_signatures
from signatures.network import Network
from signatures.signature import Signature, Tensors
from signatures.tensors import Tensor


def signatures(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a regression task."""
    low, high = network.model.task.label_range
    unit = f"in the unit of the labels, which lie from {low:g} to {high:g}; it may lie outside"

    def answer(predictions: Tensors) -> Tensors:
        share = tf.cast(predictions["score"], tf.float64)
        return {"score": tf.cast(low + (high - low) * share, tf.float32)}

    outputs = {"score": Tensor("float32", ("B",), unit)}
    return text_signatures(network, "to its score", answer, outputs)

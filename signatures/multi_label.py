"""Texts and pairs of texts to any number of labels."""

from __future__ import annotations

import tensorflow as tf

from signatures.classification import text_signatures
from signatures.network import Network
from signatures.signature import Signature, Tensors
from signatures.tensors import Tensor


def signatures(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a task of several labels."""
    labels = ", ".join(network.model.task.labels)
    outputs = {
        "chosen": Tensor("bool", ("B", "L"), f"whether each label applies: {labels}"),
        "scores": Tensor("float32", ("B", "L"), "logits of the labels"),
        "probabilities": Tensor("float32", ("B", "L"), "their sigmoids"),
    }

    def answer(predictions: Tensors) -> Tensors:
        logits = predictions["logits"]
        shares = tf.sigmoid(logits)
        return {"chosen": logits >= 0.0, "scores": logits, "probabilities": shares}

    return text_signatures(network, "to its labels", answer, outputs)

"""Texts and pairs of texts to a label, to any number of labels, or to a score."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from signatures.network import Network, token_ids
from signatures.signature import TEXT, TRUNCATED, Signature, Tensors
from signatures.tensors import Tensor

PAIR_TRUNCATED = Tensor(
    "bool", ("B",), "whether the texts were too long for one sequence, and so were cut"
)


def signatures(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a classification task."""
    labels = network.model.task.labels
    outputs = {
        "label": Tensor("string", ("B",), "the most probable label"),
        "scores": Tensor("float32", ("B", "L"), f"logits of the labels: {', '.join(labels)}"),
        "probabilities": Tensor("float32", ("B", "L"), "their softmax"),
    }
    names = tf.constant(labels)

    def answer(predictions: Tensors) -> Tensors:
        logits = predictions["logits"]
        return {
            "label": tf.gather(names, tf.argmax(logits, axis=-1)),
            "scores": logits,
            "probabilities": tf.nn.softmax(logits),
        }

    return text_signatures(network, "to its label", answer, outputs)


def text_signatures(
    network: Network,
    what: str,
    answer: Callable[[Tensors], Tensors],
    outputs: dict[str, Tensor],
) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a task of texts, or of pairs of them.

    `what` becomes of a text, `answer` leads from what the head predicts to the `outputs`.
    """
    pairs = "text_b" in network.model.task.columns
    lay_out = network.layout.pair if pairs else network.layout.single

    def of_texts(*texts):
        sequences = lay_out(*texts)
        features = network.features(sequences.ids, sequences.segment_ids)
        predictions = network.predict(features, network.lengths(features))
        return {**answer(predictions), "truncated": sequences.truncated}

    def of_ids(features):
        return answer(network.predict(features))

    default = Signature(
        f"a {'pair of texts' if pairs else 'text'} {what}",
        of_texts,
        {"text": TEXT, "text_pair": TEXT} if pairs else {"text": TEXT},
        {**outputs, "truncated": PAIR_TRUNCATED if pairs else TRUNCATED},
    )
    raw = token_ids(network, f"a sequence of token ids {what}", of_ids, outputs)
    return {"serving_default": default, "token_ids": raw}


def multi_label_signatures(network: Network) -> dict[str, Signature]:
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


def regression_signatures(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a regression task."""
    low, high = network.model.task.label_range
    unit = f"in the unit of the labels, which lie from {low:g} to {high:g}; it may lie outside"

    def answer(predictions: Tensors) -> Tensors:
        share = tf.cast(predictions["score"], tf.float64)
        return {"score": tf.cast(low + (high - low) * share, tf.float32)}

    outputs = {"score": Tensor("float32", ("B",), unit)}
    return text_signatures(network, "to its score", answer, outputs)

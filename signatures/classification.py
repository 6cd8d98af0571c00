"""Texts and pairs of texts to a label, to any number of labels, or to a score."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from signatures.network import Network, token_ids
from signatures.signature import TEXT, TRUNCATED, Signature, Tensor, Tensors


def signatures(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a classification task."""
    labels = network.model.task.labels
    outputs = {
        "label": Tensor("string", "B"),
        "scores": Tensor("float32", "BL"),
        "probabilities": Tensor("float32", "BL"),
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
        {**outputs, "truncated": TRUNCATED},
    )
    raw = token_ids(network, of_ids, outputs)
    return {"serving_default": default, "token_ids": raw}


def multi_label_signatures(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a task of several labels."""
    outputs = {
        "chosen": Tensor("bool", "BL"),
        "scores": Tensor("float32", "BL"),
        "probabilities": Tensor("float32", "BL"),
    }

    def answer(predictions: Tensors) -> Tensors:
        logits = predictions["logits"]
        shares = tf.sigmoid(logits)
        return {"chosen": logits >= 0.0, "scores": logits, "probabilities": shares}

    return text_signatures(network, "to its labels", answer, outputs)


def regression_signatures(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a regression task."""
    low, high = network.model.task.label_range

    def answer(predictions: Tensors) -> Tensors:
        share = tf.cast(predictions["score"], tf.float64)
        return {"score": tf.cast(low + (high - low) * share, tf.float32)}

    return text_signatures(network, "to its score", answer, {"score": Tensor("float32", "B")})

"""Texts and pairs of texts to labels or scores."""

from __future__ import annotations

import tensorflow as tf

from serving.network import Network, token_ids
from serving.signature import TEXT, TRUNCATED, Signature, Tensors

_PAIR_TRUNCATED = TRUNCATED.replace("the text was", "the texts were").replace("so was", "so were")


def classification(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a classification task."""
    labels = network.model.task.labels
    outputs = {
        "label": "string [B], the most probable label",
        "scores": "float32 [B, L], logits of the labels: " + ", ".join(labels),
        "probabilities": "float32 [B, L], their softmax",
    }
    names = tf.constant(labels)

    def answer(predictions: Tensors) -> Tensors:
        logits = predictions["logits"]
        return {
            "label": tf.gather(names, tf.argmax(logits, axis=-1)),
            "scores": logits,
            "probabilities": tf.nn.softmax(logits),
        }

    return _signatures(network, "to its label", answer, outputs)


def regression(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a regression task."""
    low, high = network.model.task.label_range
    unit = f"in the unit of the labels, which lie from {low:g} to {high:g}; it may lie outside"
    outputs = {"score": f"float32 [B], {unit}"}

    def answer(predictions: Tensors) -> Tensors:
        share = tf.cast(predictions["score"], tf.float64)
        return {"score": tf.cast(low + (high - low) * share, tf.float32)}

    return _signatures(network, "to its score", answer, outputs)


def _signatures(network: Network, what: str, answer, outputs: dict[str, str]):
    task = network.model.task

    def of_text(text):
        return of_rows(network.layout.single(text))

    def of_pair(text, text_pair):
        return of_rows(network.layout.pair(text, text_pair))

    def of_rows(rows):
        predictions = network.predict(rows.features, network.lengths(rows.features))
        return {**answer(predictions), "truncated": rows.truncated}

    def of_ids(features):
        return answer(network.predict(features))

    if "text_b" in task.columns:
        default = Signature(
            f"a pair of texts {what}",
            of_pair,
            {"text": TEXT, "text_pair": TEXT},
            {**outputs, "truncated": _PAIR_TRUNCATED},
        )
    else:
        default = Signature(
            f"a text {what}", of_text, {"text": TEXT}, {**outputs, "truncated": TRUNCATED}
        )
    raw = token_ids(network, f"a row of token ids {what}", of_ids, outputs)
    return {"serving_default": default, "token_ids": raw}

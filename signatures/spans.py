"""Questions to the spans of their contexts that answer them."""

from __future__ import annotations

import tensorflow as tf

from signatures.network import Network, token_ids
from signatures.signature import TEXT, TRUNCATED, Signature, Tensor
from text.windows import best_answers, context_windows, ranked_spans

_PREDICTIONS = {  # of model/heads/span.py
    "start_log_probs": Tensor("float32", "BK"),
    "start_index": Tensor("int32", "BK"),
    "end_log_probs": Tensor("float32", "BKK"),
    "end_index": Tensor("int32", "BKK"),
    "answerable_logit": Tensor("float32", "B"),
}
_ANSWER = {
    "answer": Tensor("string", "B"),
    "start": Tensor("int32", "B"),
    "end": Tensor("int32", "B"),
    "score": Tensor("float32", "B"),
    "null_score": Tensor("float32", "B"),
    "truncated": TRUNCATED,
}


def signatures(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a span task."""
    hparams, version_2 = network.model.hparams, network.model.task.version_2

    def of_context(question, context):
        windows = context_windows(
            network.layout,
            question,
            context,
            max_query_length=hparams.max_query_length,
            doc_stride=hparams.doc_stride,
        )
        features = network.features(windows.ids, windows.segment_ids)
        predictions = network.predict(features, network.lengths(features))
        best = best_answers(
            ranked_spans(windows.places, predictions, hparams.max_answer_length),
            windows.places,
            predictions["answerable_logit"],
            tf.size(context),
            answerable_classifier=hparams.answerable_classifier,
        )
        answered = best.found
        if version_2:
            answered &= best.null_score <= hparams.qa_na_threshold
        length = tf.where(answered, best.char_end - best.char_start, 0)
        first = tf.where(answered, best.char_start, 0)
        return {
            "answer": tf.strings.substr(context, first, length, unit="UTF8_CHAR"),
            "start": tf.where(answered, best.char_start, -1),
            "end": tf.where(answered, best.char_end, -1),
            "score": tf.cast(best.score, tf.float32),
            "null_score": tf.cast(best.null_score, tf.float32),
            "truncated": windows.divided | windows.cut,
        }

    about = "a question to its answer in a context"
    return {
        "serving_default": Signature(
            about, of_context, {"question": TEXT, "context": TEXT}, _ANSWER
        ),
        "token_ids": token_ids(network, network.predict, _PREDICTIONS),
    }

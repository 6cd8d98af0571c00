"""Questions to the spans of their contexts that answer them."""

from __future__ import annotations

import tensorflow as tf

from signatures.network import Network, token_ids
from signatures.signature import TEXT, Signature
from signatures.tensors import Tensor
from text.spans import best_answers, ranked_spans
from text.windows import context_windows

_PREDICTIONS = {  # of model/heads/span.py
    "start_log_probs": Tensor("float32", ("B", "K"), "of the best first tokens, best first"),
    "start_index": Tensor("int32", ("B", "K"), "those tokens"),
    "end_log_probs": Tensor(
        "float32", ("B", "K", "K"), "of the best last tokens given each first one"
    ),
    "end_index": Tensor("int32", ("B", "K", "K"), "those tokens"),
    "answerable_logit": Tensor("float32", ("B",), "speaks for no answer"),
}
_ANSWER = {
    "answer": Tensor(
        "string", ("B",), 'a slice of the context; "" where the question has no answer in it'
    ),
    "start": Tensor(
        "int32", ("B",), "the answer's first character in the context; -1 where there is none"
    ),
    "end": Tensor("int32", ("B",), "one past its last character; -1 where there is none"),
    "score": Tensor("float32", ("B",), "log probability of the best span"),
    "null_score": Tensor("float32", ("B",), "speaks for no answer"),
    "truncated": Tensor(
        "bool", ("B",), "whether the context was divided into windows, or the question was cut"
    ),
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

    outputs = dict(_ANSWER)
    if version_2:
        threshold = f'; above {hparams.qa_na_threshold:g} the answer is ""'
        outputs["null_score"] = outputs["null_score"].but(threshold)
    about = "a question to its answer in a context"
    raw = "a sequence of token ids to its possible answers"
    return {
        "serving_default": Signature(
            about, of_context, {"question": TEXT, "context": TEXT}, outputs
        ),
        "token_ids": token_ids(network, raw, network.predict, _PREDICTIONS),
    }

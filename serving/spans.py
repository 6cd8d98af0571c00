"""Questions to the spans of their contexts that answer them, as `finetune.squad` finds them."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from finetune.squad.features import SPECIAL_TOKENS_PER_ROW
from serving.alignment import align
from serving.network import Network, token_ids
from serving.signature import TEXT, Signature, Tensors
from serving.text import take, valid_utf8

_PREDICTIONS = {  # of model/span_head.py
    "start_log_probs": "float32 [B, K], of the best first tokens, best first",
    "start_index": "int32 [B, K], those tokens",
    "end_log_probs": "float32 [B, K, K], of the best last tokens given each first one",
    "end_index": "int32 [B, K, K], those tokens",
    "answerable_logit": "float32 [B], speaks for no answer",
}
_ANSWER = {
    "answer": 'string [B], a slice of the context; "" where the question has no answer in it',
    "start": "int32 [B], the answer's first character in the context; -1 where there is none",
    "end": "int32 [B], one past its last character; -1 where there is none",
    "score": "float32 [B], log probability of the best span",
    "null_score": "float32 [B], speaks for no answer",
    "truncated": "bool [B], whether the context was divided into windows, or the question was cut",
}


class Windows(NamedTuple):
    """The rows of a batch of questions: [CLS] question [SEP] window [SEP].

    Attributes:
        features: int32 [n, S] each; a question has one row or several.
        example: int64 [n], the question of each row; never falls.
        char_start, char_end: int32 [n, S], the characters of each token; 0, 0 outside the window.
        max_context: bool [n, S], whether this window shows the token best.
        truncated: bool [B].
    """

    features: Tensors
    example: tf.Tensor
    char_start: tf.Tensor
    char_end: tf.Tensor
    max_context: tf.Tensor
    truncated: tf.Tensor


def spans(network: Network) -> dict[str, Signature]:
    """`serving_default` and `token_ids` of a span task."""

    def of_context(question, context):
        context = valid_utf8(context)
        windows = layout_windows(network, question, context)
        predictions = network.predict(windows.features, network.lengths(windows.features))
        return {**_answers(network, context, windows, predictions), "truncated": windows.truncated}

    def of_ids(features):
        return network.predict(features)

    threshold = network.model.hparams.qa_na_threshold
    null_score = "float32 [B], speaks for no answer"
    if network.model.task.version_2:
        null_score += f'; above {threshold:g} the answer is ""'
    inputs = {"question": TEXT, "context": TEXT}
    return {
        "serving_default": Signature(
            "a question to its answer in a context",
            of_context,
            inputs,
            {**_ANSWER, "null_score": null_score},
        ),
        "token_ids": token_ids(
            network, "a row of token ids to its possible answers", of_ids, _PREDICTIONS
        ),
    }


# ---------------------------------------------------------------- from texts to rows


def layout_windows(network: Network, question: tf.Tensor, context: tf.Tensor) -> Windows:
    """Lays out string [B] each; see `finetune.squad.features.encode_questions`."""
    layout, hparams = network.layout, network.model.hparams
    asked = layout.tokenize(question)
    query = take(asked, tf.minimum(asked.row_lengths(), hparams.max_query_length))
    aligned = align(context, layout.tokenizer)
    total = aligned.ids.row_lengths()  # [B]
    room = layout.max_seq_length - query.row_lengths() - SPECIAL_TOKENS_PER_ROW
    stride = tf.minimum(tf.constant(hparams.doc_stride, tf.int64), room)
    count = 1 + -(-tf.maximum(total - room, 0) // stride)  # [B] windows

    windows = tf.ragged.range(count)  # [B, (windows)]
    example, number = windows.value_rowids(), windows.values  # [n]
    start = number * tf.gather(stride, example)
    end = tf.minimum(start + tf.gather(room, example), tf.gather(total, example))
    base = tf.gather(aligned.ids.row_starts(), example)
    tokens = tf.ragged.range(base + start, base + end)  # [n, (tokens)] of all contexts
    best = _shown_best(tokens, number, tf.size(aligned.ids.values))

    ones = tf.ones([tf.size(number), 1], tf.int32)
    sep = ones * layout.vocabulary.sep_id
    head = tf.concat([ones * layout.vocabulary.cls_id, tf.gather(query, example), sep], 1)
    tail = tf.concat([tf.gather(aligned.ids.values, tokens), sep], 1)
    segments = tf.concat([tf.zeros_like(head), tf.ones_like(tail)], 1)
    rows = layout.batch(tf.concat([head, tail], 1), segments, count > 1)

    def column(values: tf.RaggedTensor) -> tf.Tensor:
        """Values of the windows' tokens [n, (tokens)] as [n, S]."""
        padded = tf.concat([tf.zeros_like(head), values], 1)
        return padded.to_tensor(shape=tf.shape(rows.features["input_ids"], tf.int64))

    return Windows(
        rows.features,
        example,
        column(tf.gather(aligned.char_start.values, tokens)),
        column(tf.gather(aligned.char_end.values, tokens)),
        column(tokens.with_values(tf.cast(best, tf.int32))) > 0,
        rows.truncated | (query.row_lengths() < asked.row_lengths()),
    )


def _shown_best(tokens: tf.RaggedTensor, number: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """Whether a window shows a token best: with the most context on the side that has less.

    The longer window counts for more, and the first one of equals.

    Args:
        tokens: int64 [n, (tokens)], the tokens of each window.
        number: int64 [n], the window among those of its context.
        total: tokens of all contexts.

    Returns:
        bool, along `tokens.values`.
    """
    token, row = tokens.values, tokens.value_rowids()
    left = token - tf.gather(token, tf.gather(tokens.row_starts(), row))
    length = tf.gather(tokens.row_lengths(), row)
    right = length - 1 - left
    # In float64, as there: the same numbers are equal.
    score = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(length, tf.float64)
    highest = tf.math.unsorted_segment_max(score, token, total)
    number = tf.gather(number, row)
    among_best = tf.where(score == tf.gather(highest, token), number, number.dtype.max)
    first = tf.math.unsorted_segment_min(among_best, token, total)
    return number == tf.gather(first, token)


# ---------------------------------------------------------------- from predictions to answers


def _answers(
    network: Network, context: tf.Tensor, windows: Windows, predictions: Tensors
) -> Tensors:
    """The best span of each question; see `finetune.squad.decode.decode_answers`."""
    hparams = network.model.hparams
    start_log_probs, end_log_probs, char_start, char_end, found = _best_spans(
        windows, predictions, hparams.max_answer_length, tf.size(context)
    )
    # In float64, as there.
    score = tf.cast(start_log_probs, tf.float64) + tf.cast(end_log_probs, tf.float64)
    score = tf.where(found, score, 0.0)
    null_score = tf.math.unsorted_segment_min(
        tf.cast(predictions["answerable_logit"], tf.float64), windows.example, tf.size(context)
    )
    if not hparams.answerable_classifier:
        null_score -= score
    answered = found
    if network.model.task.version_2:
        answered &= null_score <= hparams.qa_na_threshold
    length = tf.where(answered, char_end - char_start, 0)
    first = tf.where(answered, char_start, 0)
    return {
        "answer": tf.strings.substr(context, first, length, unit="UTF8_CHAR"),
        "start": tf.where(answered, char_start, -1),
        "end": tf.where(answered, char_end, -1),
        "score": tf.cast(score, tf.float32),
        "null_score": tf.cast(null_score, tf.float32),
    }


def _best_spans(
    windows: Windows, predictions: Tensors, max_answer_length: int, B: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """The possible span of highest score of each question, the first one of equals.

    Returns:
        start_log_probs, end_log_probs float32 [B]; char_start, char_end int32 [B]; and bool [B],
        whether there is a possible span: without one the others mean nothing.
    """
    start_index, end_index = predictions["start_index"], predictions["end_index"]
    K = tf.shape(start_index)[1]
    score = predictions["start_log_probs"][:, :, None] + predictions["end_log_probs"]
    impossible = score.dtype.min
    possible = _possible(windows, start_index, end_index, max_answer_length)
    score = tf.reshape(tf.where(possible, score, impossible), [-1, K * K])  # [n, K * K]
    of_row = tf.reduce_max(score, 1)
    best = tf.math.unsorted_segment_max(of_row, windows.example, B)
    number = tf.range(tf.size(of_row))
    n = tf.size(number)
    is_best = of_row == tf.gather(best, windows.example)
    row = tf.math.unsorted_segment_min(tf.where(is_best, number, n), windows.example, B)  # [B]
    place = tf.argmax(tf.gather(score, row), axis=1, output_type=tf.int32)
    start = tf.stack([row, place // K], 1)
    end = tf.stack([row, place // K, place % K], 1)
    first = tf.stack([row, tf.gather_nd(start_index, start)], 1)
    last = tf.stack([row, tf.gather_nd(end_index, end)], 1)
    return (
        tf.gather_nd(predictions["start_log_probs"], start),
        tf.gather_nd(predictions["end_log_probs"], end),
        tf.gather_nd(windows.char_start, first),
        tf.gather_nd(windows.char_end, last),
        best > impossible,
    )


def _possible(
    windows: Windows, start_index: tf.Tensor, end_index: tf.Tensor, max_answer_length: int
) -> tf.Tensor:
    """Which spans may be answers: bool [n, K, K]."""
    first, last = start_index[:, :, None], end_index
    in_context = tf.gather(windows.char_end > windows.char_start, last, batch_dims=1)
    shown_best = tf.gather(windows.max_context, start_index, batch_dims=1)[:, :, None]
    return (last >= first) & (last - first < max_answer_length) & in_context & shown_best

"""From what a network predicts for windows to the answers of questions.

Source: `write_predictions` in finetune/qa/qa_metrics.py of ELECTRA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from text.windows import Places


class Spans(NamedTuple):
    """Possible answers, sorted by question, then the best first; each field [m].

    Attributes:
        example: int64, the question.
        char_start: int32, first character of the context.
        char_end: int32, one past the last.
        start_log_prob: float32, of the first token among those of its window.
        end_log_prob: float32, of the last token, given the first where predicted jointly.
    """

    example: tf.Tensor
    char_start: tf.Tensor
    char_end: tf.Tensor
    start_log_prob: tf.Tensor
    end_log_prob: tf.Tensor


class BestSpans(NamedTuple):
    """The best spans of B questions; each field [B], all 0 where no span is possible.

    Attributes:
        found: bool, whether a span is possible.
        char_start: int32, first character of the context.
        char_end: int32, one past the last.
        score: float64, the sum of the log probabilities.
        null_score: float64, speaks for no answer.
    """

    found: tf.Tensor
    char_start: tf.Tensor
    char_end: tf.Tensor
    score: tf.Tensor
    null_score: tf.Tensor


def ranked_spans(
    places: Places, predictions: Mapping[str, tf.Tensor], max_answer_length: int
) -> Spans:
    """The spans that may be answers; of equal ones that of the first window and place comes first.

    A span begins at a token that its window shows best, ends in the context, not before its
    beginning, and has at most `max_answer_length` tokens. Scores of different windows are compared
    as they are.

    Args:
        places: of the windows.
        predictions: of `SpanHead.predict` for the n windows: start_log_probs, start_index [n, K];
            end_log_probs, end_index [n, K, K].
        max_answer_length: maximum of tokens.
    """
    first, last = predictions["start_index"], predictions["end_index"]  # [n, K], [n, K, K]
    number = tf.range(tf.shape(first, tf.int64)[0])[:, None]  # [n, 1]
    shown_best = _of_tokens(places.max_context, number, first) > 0  # [n, K]
    length = last - first[..., None]
    chosen = tf.where((length >= 0) & (length < max_answer_length) & shown_best[..., None])
    window = chosen[:, 0]
    char_start = _of_tokens(places.char_start, window, tf.gather_nd(last, chosen))
    char_end = _of_tokens(places.char_end, window, tf.gather_nd(last, chosen))
    in_context = char_end > char_start
    chosen, char_end = chosen[in_context], char_end[in_context]  # [m, 3], [m]
    window, start = chosen[:, 0], chosen[:, :2]
    spans = Spans(
        tf.gather(places.example, window),
        _of_tokens(places.char_start, window, tf.gather_nd(first, start)),
        char_end,
        tf.gather_nd(predictions["start_log_probs"], start),
        tf.gather_nd(predictions["end_log_probs"], chosen),
    )
    order = _by_example_then_score(spans.example, spans.start_log_prob + spans.end_log_prob)
    return Spans(*(tf.gather(field, order) for field in spans))


def best_answers(
    spans: Spans,
    places: Places,
    answerable_logit: tf.Tensor,
    B: tf.Tensor,
    *,
    answerable_classifier: bool,
) -> BestSpans:
    """The best span of each question, and what speaks for no answer.

    Args:
        spans: of the questions.
        places: of the windows.
        answerable_logit: float [n], of the windows; the least one of a question counts.
        B: the number of questions.
        answerable_classifier: whether there is one; without, the best span's score is subtracted.
    """
    question = tf.range(tf.cast(B, tf.int64))
    first = tf.searchsorted(spans.example, question)
    found = tf.searchsorted(spans.example, question, side="right") > first
    answered, first = tf.where(found), first[found]
    best = Spans(*(tf.scatter_nd(answered, tf.gather(x, first), [B]) for x in spans))
    score = tf.cast(best.start_log_prob, tf.float64) + tf.cast(best.end_log_prob, tf.float64)
    logit = tf.cast(answerable_logit, tf.float64)
    null_score = tf.math.unsorted_segment_min(logit, places.example, B)
    if not answerable_classifier:
        null_score -= score
    return BestSpans(found, best.char_start, best.char_end, score, null_score)


def _of_tokens(column: tf.RaggedTensor, window: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """What stands at positions of windows; at padding, what stands at the last [SEP]."""
    last = tf.gather(column.row_limits(), window) - 1
    place = tf.gather(column.row_starts(), window) + tf.cast(position, tf.int64)
    return tf.gather(column.values, tf.minimum(place, last))


def _by_example_then_score(example: tf.Tensor, score: tf.Tensor) -> tf.Tensor:
    """The order by example, then falling score, then place: int32 [m].

    Args:
        example: int64 [m], from 0 and below 2**31.
        score: float32 [m]; what is no number comes last.
    """
    # One sort of integers takes a fifth of the time of two: floats are ordered as their bits are,
    # negative ones as those without the sign, negated.
    score = tf.where(tf.math.is_nan(score), score.dtype.min, score)
    bits = tf.bitcast(score, tf.int32)
    bits = tf.where(bits < 0, -tf.bitwise.bitwise_and(bits, 0x7FFFFFFF), bits)
    key = tf.cast(bits, tf.int64) - tf.bitwise.left_shift(example, tf.constant(32, tf.int64))
    return tf.math.top_k(key, tf.size(key)).indices  # the first one of equals comes first

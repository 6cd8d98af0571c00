"""Lays out questions with windows of their contexts, and decodes predictions to answers.

[CLS] question [SEP] window [SEP]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from convbert.data.text.alignment import AlignedTokens, align
from convbert.data.text.layout import TextLayout, row_ids, take


class Places(NamedTuple):
    """The positions of n windows' tokens in their contexts; 0 for tokens outside of these."""

    example: tf.Tensor  # int64 [n], the question of each window, ascending
    char_start: tf.RaggedTensor  # int32 [n, (tokens)], first character that the token covers
    char_end: tf.RaggedTensor  # likewise, one past the last
    max_context: tf.RaggedTensor  # likewise, 1 in the token's best window, see `_shown_best`


class Windows(NamedTuple):
    """The n sequences of B questions, one or several per question."""

    ids: tf.RaggedTensor  # int32 [n, (tokens)]
    segment_ids: tf.RaggedTensor  # likewise
    places: Places  # of their tokens
    start: tf.Tensor  # int64 [n], the first context token in the window
    first: tf.Tensor  # int64 [n], its position in the sequence
    end: tf.Tensor  # int64 [n], one past the last context token in the window
    contexts: AlignedTokens  # of the distinct contexts
    context: tf.Tensor  # int64 [B], the context of each question among them
    truncated: tf.Tensor  # bool [B], whether context has several windows or question was truncated


def context_windows(
    layout: TextLayout,
    question: tf.Tensor,
    context: tf.Tensor,
    *,
    max_query_length: int,
    doc_stride: int,
) -> Windows:
    """Lays out questions, with one sequence per window of the context; string [B] both.

    The windows of a long context begin `doc_stride` tokens apart, or a window's length if that is
    less. A context without tokens has one empty window. Questions are truncated at their end, to
    `max_query_length` tokens.

    Source: `featurize` in finetune/qa/qa_tasks.py of ELECTRA, which approximates the positions of
    pieces in the context; here they are exact (see `align`).
    """
    asked = layout.tokenize(question)
    query = take(asked, tf.minimum(asked.row_lengths(), max_query_length))
    distinct, which = tf.unique(context, tf.int64)
    contexts = align(distinct, layout.tokenizer)
    total = tf.gather(contexts.ids.row_lengths(), which)  # [B]
    room = layout.max_seq_length - query.row_lengths() - layout.frame.size(2)
    stride = tf.minimum(tf.constant(doc_stride, tf.int64), room)
    count = 1 + -(-tf.maximum(total - room, 0) // stride)  # [B] windows

    windows = tf.ragged.range(count)  # [B, (windows)]
    example, number = row_ids(windows), windows.values  # [n]
    start = number * tf.gather(stride, example)
    end = tf.minimum(start + tf.gather(room, example), tf.gather(total, example))
    base = tf.gather(tf.gather(contexts.ids.row_starts(), which), example)  # [n]
    tokens = tf.ragged.range(base + start, base + end)  # [n, (tokens)] of all contexts
    own = tf.gather(tf.cumsum(total, exclusive=True), example) - base  # offsets of each question
    best = _shown_best(tokens, number, own, tf.reduce_sum(total))

    query, frame = tf.gather(query, example), layout.frame
    tail = layout.closed(tf.gather(contexts.ids.values, tokens))
    ids, segment_ids = layout.joined(query, tail)
    first = len(frame.begin) + query.row_lengths() + len(frame.after_text)
    begin = ids.row_starts() + first
    # The positions of the windows' tokens, m in total, among those of all sequences.
    positions = tf.ragged.range(begin, begin + tokens.row_lengths()).values[:, None]

    def column(values: tf.Tensor) -> tf.RaggedTensor:
        """Returns values of these tokens, [m], along all tokens of the sequences."""
        return ids.with_values(tf.scatter_nd(positions, values, tf.shape(ids.values, tf.int64)))

    of_contexts = (contexts.char_start.values, contexts.char_end.values)
    starts, ends = (column(tf.gather(values, tokens.values)) for values in of_contexts)
    places = Places(example, starts, ends, column(tf.cast(best, tf.int32)))
    truncated = (count > 1) | (asked.row_lengths() > max_query_length)
    return Windows(ids, segment_ids, places, start, first, end, contexts, which, truncated)


def _shown_best(
    tokens: tf.RaggedTensor, number: tf.Tensor, own: tf.Tensor, total: tf.Tensor
) -> tf.Tensor:
    """Returns True for a token in the window with the most context on its shorter side.

    A window's length adds 0.01 per token, as in the original; ties go to the first window.

    `tokens` int64 [n, (tokens)] are those of each window, `number` int64 [n] is its index within
    its question, `own` int64 [n] the offset from token numbers within a question to those of all
    questions, which have `total` tokens.
    """
    row = row_ids(tokens)
    left = tf.ragged.range(tokens.row_lengths()).values
    length = tf.gather(tokens.row_lengths(), row)
    right = length - 1 - left
    # In float64, as in the original, so that the same values are equal.
    score = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(length, tf.float64)
    token = tokens.values + tf.gather(own, row)
    highest = tf.math.unsorted_segment_max(score, token, total)
    number = tf.gather(number, row)
    among_best = tf.where(score == tf.gather(highest, token), number, number.dtype.max)
    first = tf.math.unsorted_segment_min(among_best, token, total)
    return number == tf.gather(first, token)


class Spans(NamedTuple):
    """Possible answers, sorted by question, best first; each field is [m]."""

    example: tf.Tensor  # int64, the question
    char_start: tf.Tensor  # int32, first character of the context
    char_end: tf.Tensor  # int32, one past the last
    start_log_prob: tf.Tensor  # float32, of the first token within its window
    end_log_prob: tf.Tensor  # float32, of the last token, given the first with joint prediction


class BestSpans(NamedTuple):
    """The best spans of B questions; each field is [B], 0 if no span is possible."""

    found: tf.Tensor  # bool, whether a span is possible
    char_start: tf.Tensor  # int32, first character of the context
    char_end: tf.Tensor  # int32, one past the last
    score: tf.Tensor  # float64, the sum of the log probabilities
    null_score: tf.Tensor  # float64, high for no answer


def ranked_spans(
    places: Places, predictions: Mapping[str, tf.Tensor], max_answer_length: int
) -> Spans:
    """Returns the possible answers; ties go to the first window and position.

    A span begins at a token for which the window is the best one, ends in the context at or after
    its beginning, and has at most `max_answer_length` tokens. Scores of different windows are
    compared directly.

    `predictions` are those of `SpanHead.predict` for the n windows: start_log_probs, start_index
    [n, K]; end_log_probs, end_index [n, K, K].
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
    """Returns the best span of each of B questions, and its score for no answer.

    That is the minimum of `answerable_logit`, float [n], over its windows; without
    `answerable_classifier`, less the best span's score.
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
    """Gathers a column at positions of windows; padding reads the value at the last [SEP]."""
    last = tf.gather(column.row_limits(), window) - 1
    place = tf.gather(column.row_starts(), window) + tf.cast(position, tf.int64)
    return tf.gather(column.values, tf.minimum(place, last))


def _by_example_then_score(example: tf.Tensor, score: tf.Tensor) -> tf.Tensor:
    """Sorts by example (int64 [m], below 2**31), descending score, then position: int32 [m].

    Scores are float32 [m]; NaN comes last.
    """
    # One sort of integers takes a fifth of the time of two sorts: floats are ordered as their bits,
    # negative ones as the negated bits without the sign.
    score = tf.where(tf.math.is_nan(score), score.dtype.min, score)
    bits = tf.bitcast(score, tf.int32)
    bits = tf.where(bits < 0, -tf.bitwise.bitwise_and(bits, 0x7FFFFFFF), bits)
    key = tf.cast(bits, tf.int64) - tf.bitwise.left_shift(example, tf.constant(32, tf.int64))
    return tf.math.top_k(key, tf.size(key)).indices  # keeps the order of ties

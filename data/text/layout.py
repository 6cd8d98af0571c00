"""Layout of texts and pairs as token ids: special tokens, segments, truncation."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from convbert.data.tokenization import Tokenizer


class Sequences(NamedTuple):
    """Sequences of different lengths, one for each of B texts or pairs."""

    ids: tf.RaggedTensor  # int32 [B, (tokens)]
    segment_ids: tf.RaggedTensor  # likewise
    truncated: tf.Tensor  # bool [B], whether the text was truncated


def padded(
    ids: tf.RaggedTensor, segment_ids: tf.RaggedTensor, S: tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """Pads sequences int32 [B, (tokens)] to `input_ids`, `input_mask`, `segment_ids` int32 [B, S].

    S defaults to the longest sequence.
    """
    lengths = ids.row_lengths()
    S = ids.bounding_shape(axis=1) if S is None else S
    shape = tf.stack([ids.nrows(), S])
    return {
        "input_ids": ids.to_tensor(shape=shape),
        "input_mask": tf.sequence_mask(lengths, S, tf.int32),
        "segment_ids": segment_ids.to_tensor(shape=shape),
    }


class TextLayout:
    """Lays out texts (valid UTF-8) as sequences with the tokenizer's special pieces.

    The tokenizer's `frame` places these; the maximum sequence length includes them.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        self.tokenizer, self.max_seq_length = tokenizer, max_seq_length
        self.vocabulary, self.frame = tokenizer.vocabulary, tokenizer.frame

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes string [B] to int32 [B, (pieces)]."""
        return self.tokenizer.tokenize_ragged(text)

    def single(self, text: tf.Tensor) -> Sequences:
        """Returns [CLS] text [SEP] for string [B]; truncates long texts at their end."""
        return self.single_ids(self.tokenize(text))

    def single_ids(self, ids: tf.RaggedTensor) -> Sequences:
        """Returns [CLS] ids [SEP] for int32 [B, (pieces)]."""
        full, budget = ids.row_lengths(), self.max_seq_length - self.frame.size(1)
        return Sequences(*self.joined(take(ids, tf.minimum(full, budget))), full > budget)

    def pair(self, text: tf.Tensor, text_pair: tf.Tensor) -> Sequences:
        """Returns [CLS] text [SEP] text_pair [SEP] for string [B] each, the second as segment 1.

        Truncates token by token at the end of the longer text, or of the second one if lengths are
        equal. A second text without tokens is left out. Source: google-research/electra,
        finetune/classification/classification_tasks.py.
        """
        first, second = self.tokenize(text), self.tokenize(text_pair)
        a, b = first.row_lengths(), second.row_lengths()
        has_second = tf.cast(b > 0, tf.int64)
        # The remaining lengths are halves of the budget, unless one text is shorter than its half.
        budget = self.max_seq_length - self.frame.size(1)
        budget -= has_second * len(self.frame.after_text)
        cut_a = tf.minimum(a, tf.maximum(budget - b, (budget + 1) // 2))
        cut_b = tf.minimum(b, tf.maximum(budget - a, budget // 2))
        tail = self.closed(take(second, cut_b), has_second)
        return Sequences(*self.joined(take(first, cut_a), tail), (cut_a < a) | (cut_b < b))

    def closed(self, ids: tf.RaggedTensor, times: tf.Tensor | None = None) -> tf.RaggedTensor:
        """Returns ids [SEP] for int32 [n, (pieces)]; without [SEP] where `times` int64 [n] is 0."""
        last = self._special(self.frame.after_text, ids.nrows())
        if times is not None:
            every = tf.boolean_mask(last, times > 0)
            last = tf.RaggedTensor.from_row_lengths(
                tf.reshape(every, [-1]), times * len(self.frame.after_text)
            )
        return tf.concat([ids, last], 1)

    def joined(
        self, first: tf.RaggedTensor, tail: tf.RaggedTensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns [CLS] first [SEP] tail, and segments, 1 for the tail: int32 [n, (tokens)] each.

        `first` and `tail` (the second texts, `closed`) are int32 [n, (pieces)], short enough.
        """
        n, frame = first.nrows(), self.frame
        middle = [self._special(frame.after_text, n), *([] if tail is None else [tail])]
        end = [self._special(frame.end, n)] if frame.end else []
        ids = tf.concat([self._special(frame.begin, n), first, *middle, *end], 1)
        if tail is None and not frame.end_segment:
            return ids, tf.zeros_like(ids)
        segments = [0, *([] if tail is None else [1]), *([frame.end_segment] if end else [])]
        lengths = [first.row_lengths() + len(frame.begin) + len(frame.after_text)]
        lengths += [] if tail is None else [tail.row_lengths()]
        lengths += [tf.fill([n], tf.constant(len(frame.end), tf.int64))] if end else []
        lengths = tf.reshape(tf.stack(lengths, 1), [-1])  # [n * parts]
        return ids, ids.with_values(repeat(tf.tile(segments, [n]), lengths))

    def _special(self, ids: tuple[int, ...], n: tf.Tensor) -> tf.Tensor:
        """Returns special pieces for n sequences: int32 [n, pieces]."""
        return tf.tile(tf.constant([ids], tf.int32, [1, len(ids)]), [n, 1])


# Operations on ragged tensors in linear time. `tf.repeat`, and so `RaggedTensor.value_rowids`,
# builds a mask of the number of rows times the longest row.


def take(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `lengths` [B] values of [B, (n)]."""
    starts = ragged.row_starts()
    return tf.gather(ragged.values, tf.ragged.range(starts, starts + lengths))


def last(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the last `lengths` [B] values of [B, (n)]."""
    ends = ragged.row_splits[1:]
    return tf.gather(ragged.values, tf.ragged.range(ends - lengths, ends))


def row_ids(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Returns the row of each value: int64 [values]."""
    return rows_of_ends(ragged.row_splits[1:])


def repeat(values: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Repeats each of the values [n] `counts` [n] times: [total]."""
    return tf.gather(values, rows_of_ends(tf.cumsum(tf.cast(counts, tf.int64))))


def rows_of_ends(ends: tf.Tensor) -> tf.Tensor:
    """Returns the row of each value, from row ends: int64 [ends[-1]]."""
    total = tf.reduce_max(tf.concat([[0], ends[-1:]], 0))
    marks = tf.scatter_nd(ends[:, None], tf.ones_like(ends), [total + 1])
    return tf.cumsum(marks)[:-1]

"""Texts and pairs of texts to sequences of token ids: special tokens, segments, truncation."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from convbert.data.tokenization import Tokenizer


class Sequences(NamedTuple):
    """Sequences of different length, one for each of B texts or pairs."""

    ids: tf.RaggedTensor  # int32 [B, (tokens)]
    segment_ids: tf.RaggedTensor  # likewise
    truncated: tf.Tensor  # bool [B], whether the text was too long and so was cut

    @property
    def features(self) -> dict[str, tf.Tensor]:
        """The inputs of an encoder, int32 [B, S], padded to the longest sequence; see `padded`."""
        return padded(self.ids, self.segment_ids)


def padded(
    ids: tf.RaggedTensor, segment_ids: tf.RaggedTensor, S: tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """`input_ids`, `input_mask` and `segment_ids`, int32 [B, S], of sequences int32 [B, (tokens)].

    S is by default the longest of them.
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
    """Lays texts, which are valid UTF-8, out as sequences with the tokenizer's special pieces.

    Args:
        tokenizer: with the vocabulary of the model; its `frame` says where special pieces stand.
        max_seq_length: maximum sequence length, special pieces included.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        self.tokenizer, self.max_seq_length = tokenizer, max_seq_length
        self.vocabulary, self.frame = tokenizer.vocabulary, tokenizer.frame

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """string [B] -> int32 [B, (pieces)]."""
        return self.tokenizer.tokenize_ragged(text)

    def single(self, text: tf.Tensor) -> Sequences:
        """[CLS] text [SEP] for string [B]; a text that is too long loses its end."""
        return self.single_ids(self.tokenize(text))

    def single_ids(self, ids: tf.RaggedTensor) -> Sequences:
        """[CLS] ids [SEP] for int32 [B, (pieces)]."""
        full, budget = ids.row_lengths(), self.max_seq_length - self.frame.size(1)
        return Sequences(*self.joined(take(ids, tf.minimum(full, budget))), full > budget)

    def pair(self, text: tf.Tensor, text_pair: tf.Tensor) -> Sequences:
        """[CLS] text [SEP] text_pair [SEP] for string [B] each, the second text as segment 1.

        What is too long loses tokens one by one at the end of the longer text, and of the second
        one where they are of equal length. A second text of no tokens counts as none. All as in
        google-research/electra, finetune/classification/classification_tasks.py.
        """
        first, second = self.tokenize(text), self.tokenize(text_pair)
        a, b = first.row_lengths(), second.row_lengths()
        has_second = tf.cast(b > 0, tf.int64)
        # The lengths that remain are halves of the budget, unless one text is shorter than its own.
        budget = self.max_seq_length - self.frame.size(1)
        budget -= has_second * len(self.frame.after_text)
        cut_a = tf.minimum(a, tf.maximum(budget - b, (budget + 1) // 2))
        cut_b = tf.minimum(b, tf.maximum(budget - a, budget // 2))
        tail = self.closed(take(second, cut_b), has_second)
        return Sequences(*self.joined(take(first, cut_a), tail), (cut_a < a) | (cut_b < b))

    def closed(self, ids: tf.RaggedTensor, times: tf.Tensor | None = None) -> tf.RaggedTensor:
        """ids [SEP] for int32 [n, (pieces)]; where `times` int64 [n] is 0, without it."""
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
        """[CLS] first [SEP] tail and its segments, of which the tail's is 1: int32 [n, (tokens)].

        `first` and `tail`, the second texts, `closed`, are int32 [n, (pieces)], which fit.
        """
        n = first.nrows()
        begin, end = self._special(self.frame.begin, n), self._special(self.frame.end, n)
        head = tf.concat([begin, self.closed(first)], 1)
        parts = [head, *([] if tail is None else [tail]), end]
        ids = tf.concat(parts, 1)
        if tail is None and not self.frame.end_segment:
            return ids, tf.zeros_like(ids)
        segments = [0, *([] if tail is None else [1]), self.frame.end_segment]
        lengths = [part.row_lengths() for part in parts[:-1]]
        lengths.append(tf.fill([n], tf.constant(len(self.frame.end), tf.int64)))
        lengths = tf.reshape(tf.stack(lengths, 1), [-1])  # [n * parts]
        return ids, ids.with_values(repeat(tf.tile(segments, [n]), lengths))

    def _special(self, ids: tuple[int, ...], n: tf.Tensor) -> tf.Tensor:
        """Special pieces for n sequences: int32 [n, pieces]."""
        return tf.tile(tf.constant([ids], tf.int32, [1, len(ids)]), [n, 1])


# Operations on ragged tensors, in time linear in the number of their values. `tf.repeat`, and with
# it `RaggedTensor.value_rowids`, builds a mask of rows times the longest row.


def take(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first `lengths` [B] values of [B, (n)]."""
    starts = ragged.row_starts()
    return tf.gather(ragged.values, tf.ragged.range(starts, starts + lengths))


def last(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The last `lengths` [B] values of [B, (n)]."""
    ends = ragged.row_splits[1:]
    return tf.gather(ragged.values, tf.ragged.range(ends - lengths, ends))


def row_ids(ragged: tf.RaggedTensor) -> tf.Tensor:
    """The row of each value: int64 [values]."""
    return _row_ids(ragged.row_splits[1:])


def repeat(values: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Each of the values [n] as many times as `counts` [n] says: [total]."""
    return tf.gather(values, _row_ids(tf.cumsum(tf.cast(counts, tf.int64))))


def _row_ids(ends: tf.Tensor) -> tf.Tensor:
    """How many of the rising `ends` lie at or before each place: int64 [the last of them]."""
    total = tf.reduce_max(tf.concat([[0], ends[-1:]], 0))
    marks = tf.scatter_nd(ends[:, None], tf.ones_like(ends), [total + 1])
    return tf.cumsum(marks)[:-1]

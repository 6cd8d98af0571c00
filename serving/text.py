"""Texts to rows of token ids inside the graph, laid out and cut as `finetune.encoding` does."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from data.tokenization import Tokenizer
from data.vocabulary import Vocabulary


class Rows(NamedTuple):
    """A batch of rows.

    Attributes:
        features: `input_ids`, `input_mask`, `segment_ids` int32 [B, S].
        lengths: int32 [B], tokens of each row, [CLS] and [SEP] among them.
        truncated: bool [B], whether the text was too long and so was cut.
    """

    features: dict[str, tf.Tensor]
    lengths: tf.Tensor
    truncated: tf.Tensor


def valid_utf8(text: tf.Tensor) -> tf.Tensor:
    """The text with U+FFFD in place of bytes that are not UTF-8, as Python's "replace" has it.

    The ops that follow are undefined on such bytes. U+FFFD is removed before tokenisation.
    """
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def take(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first `lengths` [B] values of the rows of [B, (n)]."""
    starts = ragged.row_starts()
    return tf.gather(ragged.values, tf.ragged.range(starts, starts + lengths))


class TextLayout:
    """Lays texts out as rows.

    Args:
        vocabulary: of the model.
        max_seq_length: the most tokens of a row.
        padding: tokens of padding after the longest row of a batch, as far as `max_seq_length`
            allows; what is further away shows in no output.
    """

    def __init__(self, vocabulary: Vocabulary, max_seq_length: int, *, padding: int = 0):
        self.vocabulary, self.max_seq_length = vocabulary, max_seq_length
        self.padding = padding
        self.tokenizer = Tokenizer(vocabulary)
        self._pieces = tf.constant(vocabulary.tokens)  # [V]

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """string [B], any bytes -> int32 [B, (n)]."""
        return self.tokenizer.tokenize_ragged(valid_utf8(text))

    def single(self, text: tf.Tensor) -> Rows:
        """[CLS] text [SEP] for string [B]; what is too long loses its end."""
        return self.single_row(self.tokenize(text))

    def single_row(self, ids: tf.RaggedTensor) -> Rows:
        """[CLS] ids [SEP] for int32 [B, (n)]."""
        full, budget = ids.row_lengths(), self.max_seq_length - 2
        kept = take(ids, tf.minimum(full, budget))
        ones = tf.ones([ids.nrows(), 1], tf.int32)
        rows = tf.concat([ones * self.vocabulary.cls_id, kept, ones * self.vocabulary.sep_id], 1)
        return self.batch(rows, tf.zeros_like(rows), full > budget)

    def pair(self, text: tf.Tensor, text_pair: tf.Tensor) -> Rows:
        """[CLS] text [SEP] text_pair [SEP] for string [B] each, the second text as segment 1.

        What is too long loses tokens at the end of the longer text, and of the second one where
        they are of equal length. A second text of no tokens counts as none.
        """
        first, second = self.tokenize(text), self.tokenize(text_pair)
        a, b = first.row_lengths(), second.row_lengths()
        has_second = tf.cast(b > 0, tf.int64)
        budget = self.max_seq_length - 2 - has_second
        cut_a = tf.minimum(a, tf.maximum(budget - b, (budget + 1) // 2))
        cut_b = tf.minimum(b, tf.maximum(budget - a, budget // 2))
        ones = tf.ones([first.nrows(), 1], tf.int32)
        sep = ones * self.vocabulary.sep_id
        last = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(has_second)], self.vocabulary.sep_id), has_second
        )
        head = tf.concat([ones * self.vocabulary.cls_id, take(first, cut_a), sep], 1)
        tail = tf.concat([take(second, cut_b), last], 1)
        segments = tf.concat([tf.zeros_like(head), tf.ones_like(tail)], 1)
        return self.batch(tf.concat([head, tail], 1), segments, (cut_a < a) | (cut_b < b))

    def batch(
        self, ids: tf.RaggedTensor, segment_ids: tf.RaggedTensor, truncated: tf.Tensor
    ) -> Rows:
        """Pads rows int32 [B, (n)] and their segments."""
        lengths = ids.row_lengths()
        S = self.padded_length(lengths)
        shape = tf.stack([ids.nrows(), S])
        features = {
            "input_ids": ids.to_tensor(shape=shape),
            "input_mask": tf.sequence_mask(lengths, S, tf.int32),
            "segment_ids": segment_ids.to_tensor(shape=shape),
        }
        return Rows(features, tf.cast(lengths, tf.int32), truncated)

    def padded_length(self, lengths: tf.Tensor) -> tf.Tensor:
        """S of a batch of rows of these lengths, int64; at least 1 even where there are no rows."""
        longest = tf.reduce_max(tf.concat([tf.ones([1], tf.int64), lengths], 0))
        return tf.minimum(longest + self.padding, self.max_seq_length)

    def pieces(self, rows: Rows) -> tf.Tensor:
        """The word pieces of rows: string [B, S], "" at padding."""
        names = tf.gather(self._pieces, rows.features["input_ids"])
        return tf.where(rows.features["input_mask"] > 0, names, "")

    def piece_names(self, ids: tf.Tensor) -> tf.Tensor:
        """The word pieces of ids of any shape."""
        return tf.gather(self._pieces, ids)

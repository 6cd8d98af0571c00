"""Texts and pairs of texts to sequences of token ids: special tokens, segments, truncation."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from data.tokenization import Tokenizer
from text.ragged import repeat, take


class Sequences(NamedTuple):
    """Sequences of different length, one for each of B texts or pairs.

    Attributes:
        ids: int32 [B, (tokens)].
        segment_ids: int32 [B, (tokens)].
        truncated: bool [B], whether the text was too long and so was cut.
    """

    ids: tf.RaggedTensor
    segment_ids: tf.RaggedTensor
    truncated: tf.Tensor

    @property
    def features(self) -> dict[str, tf.Tensor]:
        """What an encoder takes, see `padded`; as long as the longest of these sequences."""
        return padded(self.ids, self.segment_ids)


def padded(
    ids: tf.RaggedTensor, segment_ids: tf.RaggedTensor, S: tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """`input_ids`, `input_mask` and `segment_ids`, int32 [B, S], of sequences [B, (tokens)].

    Args:
        ids: int32 [B, (tokens)].
        segment_ids: of the same lengths.
        S: int64, what they are padded to; by default the longest of them.
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
    """Lays texts, which are valid UTF-8, out as sequences with [CLS] and [SEP].

    Args:
        tokenizer: with the vocabulary of the model.
        max_seq_length: maximum sequence length, special tokens included.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        self.tokenizer, self.max_seq_length = tokenizer, max_seq_length
        self.vocabulary = tokenizer.vocabulary

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """string [B] -> int32 [B, (pieces)]."""
        return self.tokenizer.tokenize_ragged(text)

    def single(self, text: tf.Tensor) -> Sequences:
        """[CLS] text [SEP] for string [B]; a text that is too long loses its end."""
        return self.single_ids(self.tokenize(text))

    def single_ids(self, ids: tf.RaggedTensor) -> Sequences:
        """[CLS] ids [SEP] for int32 [B, (pieces)]."""
        full, budget = ids.row_lengths(), self.max_seq_length - 2
        framed = self.framed(take(ids, tf.minimum(full, budget)))
        return Sequences(framed, tf.zeros_like(framed), full > budget)

    def framed(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """[CLS] ids [SEP] for int32 [n, (pieces)] that fit."""
        cls, sep = self._special(ids.nrows())
        return tf.concat([cls, ids, sep], 1)

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
        budget = self.max_seq_length - 2 - has_second
        cut_a = tf.minimum(a, tf.maximum(budget - b, (budget + 1) // 2))
        cut_b = tf.minimum(b, tf.maximum(budget - a, budget // 2))
        last = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(has_second)], self.vocabulary.sep_id), has_second
        )
        tail = tf.concat([take(second, cut_b), last], 1)
        ids, segment_ids = self.joined(take(first, cut_a), tail)
        return Sequences(ids, segment_ids, (cut_a < a) | (cut_b < b))

    def joined(
        self, first: tf.RaggedTensor, tail: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """[CLS] first [SEP] tail and its segments, of which the tail's is 1: int32 [n, (tokens)].

        Args:
            first: int32 [n, (pieces)].
            tail: the same of the second segment, its [SEP] included.
        """
        cls, sep = self._special(first.nrows())
        ids = tf.concat([cls, first, sep, tail], 1)
        head_lengths = first.row_lengths() + 2
        lengths = tf.reshape(tf.stack([head_lengths, tail.row_lengths()], 1), [-1])
        segments = repeat(tf.range(tf.size(lengths)) % 2, lengths)
        return ids, ids.with_values(segments)

    def _special(self, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[CLS] and [SEP] for n sequences: int32 [n, 1] each."""
        ones = tf.ones([n, 1], tf.int32)
        return ones * self.vocabulary.cls_id, ones * self.vocabulary.sep_id

"""Sentences, divided into words, to sequences of token ids, divided between words."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from convbert.data.text.layout import TextLayout, row_ids, take

# Where Python's str.split() divides.
_WHITESPACE = r"[\x09-\x0d\x1c-\x1f\x{85}\p{Z}]+"


class WordSequences(NamedTuple):
    """The n sequences of B sentences; each sentence has one or several."""

    ids: tf.RaggedTensor  # int32 [n, (tokens)]
    segment_ids: tf.RaggedTensor  # likewise
    sentence: tf.Tensor  # int64 [n], the sentence of each sequence; never falls
    sequence: tf.Tensor  # int64 [words], the sequence of each word
    position: tf.Tensor  # int64 [words], where in it the word's first piece stands
    truncated: tf.Tensor  # bool [B], whether the sentence was divided, or a word of it was cut


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """The words between whitespace: string [B], valid UTF-8 -> [B, (words)]."""
    return tf.strings.split(tf.strings.regex_replace(text, _WHITESPACE, " "))


def lay_out_words(layout: TextLayout, words: tf.RaggedTensor) -> WordSequences:
    """Lays out [CLS] pieces [SEP] for the words of sentences, string [B, (words)], valid UTF-8.

    A word of no pieces, such as a control character, is an [UNK]. A sentence of too many pieces is
    divided between words into several sequences, so that every word has exactly one first piece;
    only a word longer than a sequence is cut.
    """
    budget = layout.max_seq_length - layout.frame.size(1)
    ids = layout.tokenizer.tokenize_ragged(words.values)  # [words, (pieces)]
    full = ids.row_lengths()
    unknown = tf.cast(full == 0, tf.int64)
    unk = tf.fill([tf.reduce_sum(unknown)], layout.vocabulary.unk_id)
    kept = take(ids, tf.minimum(full, budget))
    pieces = tf.concat([kept, tf.RaggedTensor.from_row_lengths(unk, unknown)], 1)
    bounds = pieces.row_splits  # [words + 1]
    first, sentence = _divide(bounds, words, budget)  # [n] each
    splits = tf.concat([tf.gather(bounds, first), bounds[-1:]], 0)  # [n + 1]
    sequences = layout.joined(tf.RaggedTensor.from_row_splits(pieces.values, splits))

    number = tf.range(tf.size(words.values, tf.int64))
    sequence = tf.searchsorted(first, number, side="right", out_type=tf.int64) - 1
    position = bounds[:-1] - tf.gather(splits, sequence) + len(layout.frame.begin)
    B = words.nrows()
    divided = tf.math.bincount(tf.cast(sentence, tf.int32), minlength=tf.cast(B, tf.int32)) > 1
    cut = tf.cast(full > budget, tf.int32)
    cut = tf.math.unsorted_segment_sum(cut, row_ids(words), B) > 0
    return WordSequences(*sequences, sentence, sequence, position, divided | cut)


def _divide(bounds: tf.Tensor, words: tf.RaggedTensor, budget: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Divides all sentences at once into as few sequences as a walk from the left gives.

    Args:
        bounds: int64 [words + 1], where each word's pieces begin among all pieces; no word has
            more than `budget`, the maximum of a sequence.

    Returns:
        (first word of each sequence, which is that of the next one where it has none; its
        sentence): int64 [n] each, rising.
    """
    start, stop = words.row_starts(), words.row_limits()
    sentence = tf.range(words.nrows())

    def too_long(start, stop):
        return tf.gather(bounds, stop) - tf.gather(bounds, start) > budget

    def step(found, sentences, start, stop, sentence):
        remaining = too_long(start, stop)
        start, stop, sentence = (tf.boolean_mask(x, remaining) for x in (start, stop, sentence))
        # The last word that begins where the sequence may end.
        end = tf.gather(bounds, start) + budget
        start = tf.searchsorted(bounds, end, side="right", out_type=tf.int64) - 1
        found, sentences = tf.concat([found, start], 0), tf.concat([sentences, sentence], 0)
        return found, sentences, start, stop, sentence

    found, sentences, *_ = tf.while_loop(
        lambda found, sentences, start, stop, sentence: tf.reduce_any(too_long(start, stop)),
        step,
        (start, sentence, start, stop, sentence),
        shape_invariants=(tf.TensorShape([None]),) * 5,
    )
    # Only sentences without words share their first word, and come in their order.
    order = tf.argsort(found, stable=True)
    return tf.gather(found, order), tf.gather(sentences, order)

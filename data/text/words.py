"""Layout of sentences of words as token ids, split between words if too long."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from convbert.data.text.layout import TextLayout, row_ids, take

# Where Python's str.split() divides, by which the words of WikiText and PTB are counted.
WHITESPACE = r"[\x09-\x0d\x1c-\x1f\x{85}\p{Z}]"


class WordSequences(NamedTuple):
    """The n sequences of B sentences, one or several per sentence."""

    ids: tf.RaggedTensor  # int32 [n, (tokens)]
    segment_ids: tf.RaggedTensor  # likewise
    sentence: tf.Tensor  # int64 [n], the sentence of each sequence, ascending
    sequence: tf.Tensor  # int64 [words], the sequence of each word
    position: tf.Tensor  # int64 [words], the position of the word's first piece in it
    truncated: tf.Tensor  # bool [B], whether the sentence was split or one of its words truncated


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits text at whitespace: string [B], valid UTF-8 -> [B, (words)]."""
    return tf.strings.split(tf.strings.regex_replace(text, f"{WHITESPACE}+", " "))


def lay_out_words(layout: TextLayout, words: tf.RaggedTensor) -> WordSequences:
    """Lays out [CLS] pieces [SEP] for the words of sentences, string [B, (words)], valid UTF-8.

    A word without pieces, such as a control character, becomes [UNK]. A long sentence is split
    between words into several sequences, so that every word has exactly one first piece; only a
    word longer than a sequence is truncated.
    """
    budget = layout.max_seq_length - layout.frame.size(1)
    texts, place = words.values, tf.ragged.range(words.row_lengths()).values
    if layout.tokenizer.before_word:
        separated = tf.strings.join([layout.tokenizer.before_word, texts])
        texts = tf.where(place > 0, separated, texts)
    ids = layout.tokenizer.tokenize_ragged(texts)  # [words, (pieces)]
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
    """Splits all sentences greedily from the left into sequences of at most `budget` pieces.

    `bounds` int64 [words + 1] are the starts of words' pieces among all pieces; no word has more
    than `budget`. Returns the first word of each sequence, which equals that of the next one if it
    has no words, and its sentence: int64 [n] each, ascending.
    """
    start, stop = words.row_starts(), words.row_limits()
    sentence = tf.range(words.nrows())

    def too_long(start, stop):
        return tf.gather(bounds, stop) - tf.gather(bounds, start) > budget

    def step(found, sentences, start, stop, sentence):
        remaining = too_long(start, stop)
        start, stop, sentence = (tf.boolean_mask(x, remaining) for x in (start, stop, sentence))
        # The last possible end of the sequence that is the beginning of a word.
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
    # Only sentences without words share their first word, and they are in order.
    order = tf.argsort(found, stable=True)
    return tf.gather(found, order), tf.gather(sentences, order)

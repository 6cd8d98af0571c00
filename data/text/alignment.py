"""Alignment of word pieces with the original text.

Tokens belong to the normalised text, for example without accents, while answers are slices of the
original text. So every normalised character is traced back to its original character.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from convbert.data.text.layout import repeat, row_ids
from convbert.data.tokenization import Tokenizer


class AlignedTokens(NamedTuple):
    """The word pieces of B texts; fields are int32 [B, (pieces)].

    Offsets never decrease within a text. `char_end` is greater than `char_start`, except for a
    SentencePiece piece that covers nothing, see `tokenize_ragged_with_offsets`.
    """

    ids: tf.RaggedTensor
    char_start: tf.RaggedTensor  # first character of the text that the piece covers
    char_end: tf.RaggedTensor  # one past its last


def align(text: tf.Tensor, tokenizer: Tokenizer) -> AlignedTokens:
    """Tokenizes string [B], valid UTF-8, with the ids of `tokenizer`.

    A piece covers whole original characters: if a character has several normalised characters in
    different pieces, the pieces overlap. Removed accents belong to the character before them; other
    removed characters belong to a piece only if they are inside of it.

    Normalisation may depend on neighbouring characters (final sigma), but not the number of
    characters it produces for one.
    """
    codes = tf.strings.unicode_decode(text, "UTF-8")  # [B, (characters)]
    counts, removed_mark = tokenizer.characters_made(codes)  # [all characters]
    normalized = tokenizer.normalize(text)
    source = repeat(tf.range(tf.size(counts)), counts)  # [all normalised characters]
    byte_bases = tf.cumsum(tf.strings.length(normalized), exclusive=True)  # [B]
    _, offsets = tf.strings.unicode_decode_with_offsets(normalized, "UTF-8")
    # Of every normalised character, its first byte, numbered through all texts: ascending.
    first_bytes = tf.cast(offsets.values, tf.int32) + repeat(byte_bases, offsets.row_lengths())
    tf.debugging.assert_equal(tf.size(source), tf.size(first_bytes))

    ids, starts, ends = tokenizer.tokenize_ragged_with_offsets(normalized)
    row = row_ids(ids)
    base = tf.gather(byte_bases, row)  # [all pieces]

    def original(byte_in_text):
        """Returns the original character of a byte, numbered through all texts: [all pieces]."""
        byte = tf.cast(byte_in_text, tf.int32) + base
        return tf.gather(source, tf.searchsorted(first_bytes, byte, side="right") - 1)

    empty = starts.values == ends.values
    first = original(starts.values)
    last = tf.where(empty, first, original(tf.maximum(ends.values - 1, starts.values)))
    bounds = tf.cast(codes.row_splits, tf.int32)
    begin, end = tf.gather(bounds[:-1], row), tf.gather(bounds[1:], row)
    # The first characters from there on that are not removed accents, or the end.
    kept = tf.concat([tf.cast(tf.where(~removed_mark)[:, 0], tf.int32), [tf.size(removed_mark)]], 0)
    next_kept = tf.gather(kept, tf.searchsorted(kept, last + 1, side="left"))
    after = tf.where(empty, first, tf.minimum(next_kept, end))
    return AlignedTokens(ids, ids.with_values(first - begin), ids.with_values(after - begin))


def covering(
    tokens: AlignedTokens, text: tf.Tensor, start: tf.Tensor, end: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first and last piece that overlap characters [start, end) of a text.

    All are int64 [n]; `text` indexes the B texts of `tokens`. The first is greater than the last if
    no piece overlaps the characters.
    """
    # Texts are concatenated, each with the length of the longest.
    length = tf.reduce_max(tf.concat([[0], tf.cast(tokens.char_end.values, tf.int64)], 0)) + 1
    own = row_ids(tokens.ids) * length

    def count(values, place, side):
        """Counts the pieces' values below, or up to, a position in their text."""
        found = own + tf.cast(values, tf.int64)
        place = text * length + tf.minimum(place, length - 1)
        number = tf.searchsorted(found, place, side=side, out_type=tf.int64)
        return number - tf.gather(tokens.ids.row_starts(), text)

    first = count(tokens.char_end.values, start, "right")
    return first, count(tokens.char_start.values, end, "left") - 1

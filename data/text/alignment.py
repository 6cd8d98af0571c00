"""Where in the original text each word piece stands.

Tokens are those of the normalised text, without accents for instance, while answers are slices of
the text as it was written. So every normalised character is traced back to the one it comes from.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from convbert.data.text.layout import repeat, row_ids
from convbert.data.tokenization import Tokenizer


class AlignedTokens(NamedTuple):
    """The word pieces of B texts: int32 [B, (pieces)] each.

    Places never fall within a text. `char_end` is greater than `char_start`, but of a piece of
    SentencePiece that covers nothing, see `tokenize_ragged_with_offsets`.
    """

    ids: tf.RaggedTensor
    char_start: tf.RaggedTensor  # first character of the text that the piece covers
    char_end: tf.RaggedTensor  # one past its last


def align(text: tf.Tensor, tokenizer: Tokenizer) -> AlignedTokens:
    """Tokenizes string [B], valid UTF-8; the ids are those of `tokenizer`.

    A piece covers whole characters of the original: where one of them has several normalised
    characters in different pieces, the pieces overlap. Accents that were removed belong to the
    character before them; other removed characters belong to a piece only inside of it.

    Normalisation may choose among forms of a character by its neighbours (a final sigma), but never
    changes how many it makes of one.
    """
    codes = tf.strings.unicode_decode(text, "UTF-8")  # [B, (characters)]
    counts, removed_mark = tokenizer.characters_made(codes)  # [all characters]
    normalized = tokenizer.normalize(text)
    source = repeat(tf.range(tf.size(counts)), counts)  # [all normalised characters]
    byte_bases = tf.cumsum(tf.strings.length(normalized), exclusive=True)  # [B]
    first_bytes = _first_bytes(normalized, byte_bases)
    tf.debugging.assert_equal(tf.size(source), tf.size(first_bytes))

    ids, starts, ends = tokenizer.tokenize_ragged_with_offsets(normalized)
    row = row_ids(ids)
    base = tf.gather(byte_bases, row)  # [all pieces]

    def original(byte_in_text):
        """The original character, among those of all texts, of a byte: [all pieces]."""
        byte = tf.cast(byte_in_text, tf.int32) + base
        return tf.gather(source, tf.searchsorted(first_bytes, byte, side="right") - 1)

    empty = starts.values == ends.values
    first = original(starts.values)
    last = tf.where(empty, first, original(tf.maximum(ends.values - 1, starts.values)))
    bounds = tf.cast(codes.row_splits, tf.int32)
    begin, end = tf.gather(bounds[:-1], row), tf.gather(bounds[1:], row)
    after = tf.where(empty, first, tf.minimum(_next_kept(last + 1, removed_mark), end))
    return AlignedTokens(ids, ids.with_values(first - begin), ids.with_values(after - begin))


def covering(
    tokens: AlignedTokens, text: tf.Tensor, start: tf.Tensor, end: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """First and last piece that touch the characters [start, end) of a text, n times.

    All are int64 [n]; `text` is one of the B of `tokens`. The first is greater than the last where
    no piece touches the characters.
    """
    # The texts lie end to end, each as long as the longest.
    length = tf.reduce_max(tf.concat([[0], tf.cast(tokens.char_end.values, tf.int64)], 0)) + 1
    own = row_ids(tokens.ids) * length

    def count(values, place, side):
        """How many of the pieces' values are below a place of their text, or at it."""
        found = own + tf.cast(values, tf.int64)
        place = text * length + tf.minimum(place, length - 1)
        number = tf.searchsorted(found, place, side=side, out_type=tf.int64)
        return number - tf.gather(tokens.ids.row_starts(), text)

    first = count(tokens.char_end.values, start, "right")
    return first, count(tokens.char_start.values, end, "left") - 1


def _first_bytes(text: tf.Tensor, bases: tf.Tensor) -> tf.Tensor:
    """The first byte of every character, counted through all texts: int32, rising."""
    _, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
    return tf.cast(offsets.values, tf.int32) + repeat(bases, offsets.row_lengths())


def _next_kept(places: tf.Tensor, removed_mark: tf.Tensor) -> tf.Tensor:
    """The first characters from `places` on that are no removed accents, or the end of all."""
    kept = tf.cast(tf.where(~removed_mark)[:, 0], tf.int32)
    kept = tf.concat([kept, [tf.size(removed_mark)]], 0)
    return tf.gather(kept, tf.searchsorted(kept, places, side="left"))

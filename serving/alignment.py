"""Where in the original text each word piece stands, inside the graph.

The same as `finetune.squad.alignment`, which says how; here all texts of a batch lie end to end.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from data.tokenization import ACCENTS, Tokenizer


class AlignedTokens(NamedTuple):
    """The word pieces of B texts.

    Attributes:
        ids: int32 [B, (T)].
        char_start: int32 [B, (T)], first character of the text that the piece covers.
        char_end: int32 [B, (T)], one past its last; greater than `char_start`.
    """

    ids: tf.RaggedTensor
    char_start: tf.RaggedTensor
    char_end: tf.RaggedTensor


def align(text: tf.Tensor, tokenizer: Tokenizer) -> AlignedTokens:
    """Tokenizes string [B], valid UTF-8; see `AlignedTokens`."""
    characters = tf.strings.unicode_split(text, "UTF-8")  # [B, (C)]
    counts, removed_mark = _normalized_characters(characters.values, tokenizer)  # [total C]
    normalized = tokenizer.normalize(text)
    # The original character of each normalised one; normalisation never changes how many it makes.
    source = tf.repeat(tf.range(tf.size(counts)), counts)  # [total normalised characters]
    byte_bases = tf.cumsum(tf.strings.length(normalized), exclusive=True)  # [B]
    first_bytes = _first_bytes(normalized, byte_bases)
    tf.debugging.assert_equal(tf.size(source), tf.size(first_bytes))

    ids, starts, ends = tokenizer.tokenize_ragged_with_offsets(normalized)
    row = ids.value_rowids()
    base = tf.gather(byte_bases, row)  # [total T]

    def original(byte_in_row):
        """The original character, among those of all texts, of a byte: [total T]."""
        byte = tf.cast(byte_in_row, tf.int32) + base
        return tf.gather(source, tf.searchsorted(first_bytes, byte, side="right") - 1)

    first, last = original(starts.values), original(ends.values - 1)
    bounds = tf.cast(characters.row_splits, tf.int32)
    begin, end = tf.gather(bounds[:-1], row), tf.gather(bounds[1:], row)
    after = tf.minimum(_next_kept(last + 1, removed_mark), end)
    return AlignedTokens(ids, ids.with_values(first - begin), ids.with_values(after - begin))


def _normalized_characters(
    characters: tf.Tensor, tokenizer: Tokenizer
) -> tuple[tf.Tensor, tf.Tensor]:
    """Of each character, how many it is when normalised, and whether it is an accent removed."""
    distinct, index = tf.unique(characters)
    counts = tf.strings.length(tokenizer.normalize(distinct), unit="UTF8_CHAR")
    removed_mark = tf.strings.regex_full_match(distinct, ACCENTS) & (counts == 0)
    return tf.gather(counts, index), tf.gather(removed_mark, index)


def _first_bytes(text: tf.Tensor, bases: tf.Tensor) -> tf.Tensor:
    """The first byte of every character, counted through all texts: int32, rising."""
    _, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
    return tf.cast(offsets.values, tf.int32) + tf.gather(bases, offsets.value_rowids())


def _next_kept(places: tf.Tensor, removed_mark: tf.Tensor) -> tf.Tensor:
    """The first characters from `places` on that are no removed accents, or the end of all."""
    kept = tf.cast(tf.where(~removed_mark)[:, 0], tf.int32)
    kept = tf.concat([kept, [tf.size(removed_mark)]], 0)
    return tf.gather(kept, tf.searchsorted(kept, places, side="left"))

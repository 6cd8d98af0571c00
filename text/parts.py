"""Texts of pieces to parts that overlap, in which every piece has context and counts once."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from text.ragged import row_ids


class Parts(NamedTuple):
    """The n parts of B texts; each text has one or several.

    Attributes:
        pieces: int32 [n, (pieces)], what each part shows.
        text: int64 [n], the text of each part; never falls.
        start: int64 [n], the first piece that counts in the part, from the part's first.
        end: int64 [n], one past the last.
    """

    pieces: tf.RaggedTensor
    text: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor


def overlapping_parts(pieces: tf.RaggedTensor, room: int, before: int, after: int) -> Parts:
    """Divides texts that do not fit; each piece counts in exactly one part.

    Where it counts, at least `before` pieces in front of it and `after` behind it are shown, unless
    the text begins or ends earlier. The last part is as full as the others. A text of no pieces has
    one part, of none.

    Args:
        pieces: int32 [B, (pieces)].
        room: the maximum of a part, greater than before + after.
        before, after: pieces.
    """
    total = pieces.row_lengths()  # [B]
    step = room - before - after
    count = 1 - tf.maximum(total - room, 0) // -step  # 1 + the ceiling
    numbers = tf.ragged.range(count)  # [B, (parts)]
    text, number = row_ids(numbers), numbers.values  # [n]
    size = tf.gather(total, text)
    shown = tf.minimum(number * step, tf.maximum(size - room, 0))
    first = tf.where(number > 0, number * step + before, 0)
    is_last = number + 1 == tf.gather(count, text)
    end = tf.where(is_last, size, (number + 1) * step + before)
    base = tf.gather(pieces.row_starts(), text) + shown
    tokens = tf.ragged.range(base, base + tf.minimum(size - shown, room))
    return Parts(tf.gather(pieces.values, tokens), text, first - shown, end - shown)

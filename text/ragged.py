"""Operations on ragged tensors, in time linear in the number of their values.

`tf.repeat`, and with it `RaggedTensor.value_rowids`, builds a mask of rows times the longest row.
"""

from __future__ import annotations

import tensorflow as tf


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

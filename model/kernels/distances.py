"""XLNet's scores by distance, moved to the keys that they belong to.

The product of queries with the encodings of all L = 2 S distances holds the distance part of a
score at another position for every query: that of query i and key j is at S - i + j. On a TPU, in
bfloat16, a product with ones and zeros moves them: it is exact there, and takes less time.
"""

from __future__ import annotations

import tensorflow as tf

from convbert.model.kernels.fusion import custom_gradient, on_matrix_unit, sizes


def scores_by_key(scores: tf.Tensor) -> tf.Tensor:
    """Converts scores by distance to scores by key for all queries: [B, N, S, L] -> [B, N, S, S].

    The S scores of a query begin one position later than those of the next query. So in the flat
    array of all scores without the first S, they begin at multiples of L - 1.
    """
    B, N, S, L = sizes(scores)
    if scores.dtype == tf.bfloat16 and on_matrix_unit(S):
        return tf.einsum("bnqd,qdk->bnqk", scores, _ones(tf.range(S), S, scores.dtype))
    flat = tf.reshape(scores, [B, N, S * L])[:, :, S:]
    return tf.reshape(flat, [B, N, S, L - 1])[..., :S]


def scores_by_key_at(scores: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """`scores_by_key` for P queries at `places`, int32 [B, P]: [B, N, P, L] -> [B, N, P, S]."""
    S = sizes(scores)[3] // 2
    if scores.dtype == tf.bfloat16 and on_matrix_unit(S):
        return tf.einsum("bnqd,bqdk->bnqk", scores, _ones(places, S, scores.dtype))
    # With heads last, a query's position is a run of N numbers.
    heads_last = tf.transpose(scores, [0, 2, 3, 1])  # [B, P, L, N]
    return tf.transpose(_taken(heads_last, S - places, S), [0, 3, 1, 2])


def _ones(places, S, dtype):
    """[..., P] -> [..., P, L, S]: 1 where a distance is that of the query at a place and a key."""
    return tf.cast(tf.range(2 * S)[:, None] == S - places[..., None, None] + tf.range(S), dtype)


def _taken(values, first, count):
    """Slices values [B, P, L, N] from positions `first` [B, P] on to [B, P, count, N].

    The gradient is a slice, too, whereas the gradient of a gather adds number by number.
    """

    @custom_gradient
    def take(values):
        def gradient(upstream):
            L = sizes(values)[2]
            padded = tf.pad(upstream, [[0, 0], [0, 0], [1, 1], [0, 0]])
            place = tf.range(L) - first[..., None] + 1  # [B, P, L]
            return tf.gather(padded, tf.clip_by_value(place, 0, count + 1), batch_dims=2)

        return tf.gather(values, first[..., None] + tf.range(count), batch_dims=2), gradient

    return take(values)

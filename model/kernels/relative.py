"""Scores by distance, as a product has them, to scores by key.

The score of a query and a key has a part that depends on their distance. A product of queries with
the encodings of all L = T + S distances, from T down to 1 - S, has it at another place for every
query: that of key j, of T, and the query at place i of the S last keys is at S - i + j.
"""

from __future__ import annotations

import tensorflow as tf

from model.kernels.fusion import sizes


def scores_by_key(scores: tf.Tensor) -> tf.Tensor:
    """Scores by distance to scores by key, of queries at all places: [B, N, S, L] -> [B, N, S, T].

    The places of a query's T scores begin one later than those of the next query. So they begin at
    multiples of L - 1, where all scores stand one after the other and the first S are left out.
    """
    B, N, S, L = sizes(scores)
    flat = tf.reshape(scores, [B, N, S * L])[:, :, S:]
    return tf.reshape(flat, [B, N, S, L - 1])[..., : L - S]


def scores_by_key_reference(scores: tf.Tensor) -> tf.Tensor:
    """`scores_by_key`, readable; S is static."""
    S, L = scores.shape[2:]
    return tf.stack([scores[:, :, i, S - i : S - i + L - S] for i in range(S)], 2)


def scores_by_key_at(scores: tf.Tensor, places: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
    """`scores_by_key` of P queries at given places.

    Args:
        scores: [B, N, P, L].
        places: int32 [B, P] in [0, S).
        length: S.

    Returns:
        [B, N, P, T].
    """
    L = sizes(scores)[3]
    T = L - length
    # With heads last, a place of a query is a run of N numbers.
    heads_last = tf.transpose(scores, [0, 2, 3, 1])  # [B, P, L, N]
    return tf.transpose(_taken(heads_last, length - places, T), [0, 3, 1, 2])


def scores_by_key_at_reference(
    scores: tf.Tensor, places: tf.Tensor, length: int | tf.Tensor
) -> tf.Tensor:
    """`scores_by_key_at`, readable."""
    T = scores.shape[3] - length
    index = (length - places)[:, None, :, None] + tf.range(T)
    index = tf.broadcast_to(index, [*scores.shape[:3], T])
    return tf.gather(scores, index, batch_dims=3)


def _taken(values, first, count):
    """values [B, P, L, N] from places `first` [B, P] on -> [B, P, count, N].

    The gradient is taken as well, where that of a gather is added up number by number.
    """

    @tf.custom_gradient
    def take(values):
        def gradient(upstream):
            L = sizes(values)[2]
            padded = tf.pad(upstream, [[0, 0], [0, 0], [1, 1], [0, 0]])
            place = tf.range(L) - first[..., None] + 1  # [B, P, L]
            return tf.gather(padded, tf.clip_by_value(place, 0, count + 1), batch_dims=2)

        return tf.gather(values, first[..., None] + tf.range(count), batch_dims=2), gradient

    return take(values)

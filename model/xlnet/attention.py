"""Relative attention, equation by equation.

The score of query i and key j, with the distance i - j and segments s (Yang et al. 2019, section
2.6, and Transformer-XL, section 3.3):

    score_ij = [(q_i + r_w) · k_j + (q_i + r_r) · R_(i-j) + (q_i + r_s) · e_(s_i ≠ s_j)] / √H

q, k, v are projections of the hidden states, R of the encodings of distances; r_w, r_r, r_s and the
two vectors e_same and e_other are learned for each head. Softmax ignores a term that all keys of a
query share, so the last term is computed as (q_i + r_s) · (e_same - e_other) for keys of the same
segment and 0 for others: C additional columns in the product of queries and keys, for C segments.

Axis letters: B batch, S tokens, P queries of the query stream, Q of either one, D hidden, N heads,
H head width, A = N · H = D, L = 2 S distances, from S down to 1 - S.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf
import tf_keras

from convbert.model.kernels import (
    affine,
    attention_probabilities,
    join_heads,
    scores_by_key,
    scores_by_key_at,
    sizes,
    split_heads,
)
from convbert.model.xlnet.config import XLNetConfig

# Added to the scores of hidden keys; the original's value. It absorbs the scores in rounding, so
# the probability of a hidden key is exactly 0 if the query sees any key.
UNSEEN_SCORE = -1e30


def distance_encodings(length: int, config: XLNetConfig) -> tf.Tensor:
    """Returns encodings of the distances from S = length down to 1 - length, float32 [1, L, D].

    They are sines, then cosines, at D / 2 frequencies.
    """
    half = tf.range(0, config.hidden_size, 2, tf.float32) / config.hidden_size
    frequencies = 10000.0**-half  # [D / 2]
    distances = tf.cast(tf.range(length, -length, -1), tf.float32)
    angles = distances[:, None] * frequencies  # [L, D / 2]
    return tf.concat([tf.sin(angles), tf.cos(angles)], -1)[None]


@dataclasses.dataclass(frozen=True)
class AttentionInputs:
    """Inputs shared by all layers, besides hidden states; none of them is learned.

    Attributes:
        encodings: distance encodings, [1, L, D]; see `distance_encodings`.
        segments: one-hot [B, S, C].
        bias: bias of the scores, [B, 1, 1 or S, S].
        targets: None, or positions of the query stream's tokens, int32 [B, P].
        target_segments: one-hot [B, P, C].
        target_bias: [B, 1, P, S].
        target_sees: [B, P, 1], 0 for targets that see no key, whose context is 0.
    """

    encodings: tf.Tensor
    segments: tf.Tensor
    bias: tf.Tensor
    targets: tf.Tensor | None = None
    target_segments: tf.Tensor | None = None
    target_bias: tf.Tensor | None = None
    target_sees: tf.Tensor | None = None


def normal_initializer(config: XLNetConfig) -> tf_keras.initializers.Initializer:
    """Returns XLNet's normal initialiser, which unlike BERT's is not truncated."""
    return tf_keras.initializers.RandomNormal(stddev=config.initializer_range)


class RelativeAttention(tf_keras.layers.Layer):
    """Multi-head attention by contents, distances and segments, for one stream or two.

    Weights: `query_kernel`, `key_kernel`, `value_kernel`, `encoding_kernel` [D, A], `output_kernel`
    [A, D], `segment_embeddings` [2, N, H] (e_same, e_other), and `content_bias`, `position_bias`,
    `segment_bias` [N, H] (r_w, r_r, r_s). Projections have no bias.
    """

    def __init__(self, config: XLNetConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def build(self, input_shape):
        D, N, H = self.config.hidden_size, self.config.num_attention_heads, self.config.head_size

        def weight(name: str, *shape: int) -> tf.Variable:
            return self.add_weight(name, shape, initializer=normal_initializer(self.config))

        self.query_kernel = weight("query_kernel", D, N * H)
        self.key_kernel = weight("key_kernel", D, N * H)
        self.value_kernel = weight("value_kernel", D, N * H)
        self.encoding_kernel = weight("encoding_kernel", D, N * H)
        self.output_kernel = weight("output_kernel", N * H, D)
        self.segment_embeddings = weight("segment_embeddings", 2, N, H)
        self.content_bias, self.position_bias, self.segment_bias = (
            weight(f"{which}_bias", N, H) for which in ("content", "position", "segment")
        )

    def call(self, hidden, query=None, *, given, training=False, seeds=(None, None)):
        """Attends in the content stream and, if given, in the query stream.

        Args:
            hidden: content stream, [B, S, D].
            query: query stream [B, P, D], or None.
            seeds: int32 [2] for dropout in training, one for each stream.

        Returns:
            The streams, [B, S, D] and, if given, [B, P, D]; the content stream's probabilities
            [B, N, S, S].
        """
        q, k, v = self._projected(hidden, training)
        N = self.config.num_attention_heads
        B, S, C = sizes(given.segments)
        segments = tf.broadcast_to(given.segments[:, None], [B, N, S, C])
        k = tf.concat([split_heads(k, N), segments], -1)
        v = split_heads(v, N)  # [B, N, S, H]
        r = affine(given.encodings, self.encoding_kernel, None)
        r = split_heads(r, N)  # [1, N, L, H]

        scores, by_distance = self._scores(q, k, r, given.segments)
        scores += scores_by_key(by_distance)  # [B, N, S, S]
        context, probabilities = self._attend(scores, v, given.bias, training, seeds[0])
        output = affine(context, self.output_kernel, None)
        if query is None:
            return output, probabilities

        q = affine(query, self.query_kernel, tf.reshape(self.content_bias, [-1]))
        scores, by_distance = self._scores(q, k, r, given.target_segments)
        scores += scores_by_key_at(by_distance, given.targets)  # [B, N, P, S]
        context, _ = self._attend(scores, v, given.target_bias, training, seeds[1])
        return output, affine(context * given.target_sees, self.output_kernel, None), probabilities

    def _projected(self, hidden, training):
        """Returns q + r_w, k and v, [B, S, A] each."""
        bias = tf.reshape(self.content_bias, [-1])
        if training:  # one product, so its gradient is one, too
            kernels = tf.concat([self.query_kernel, self.key_kernel, self.value_kernel], 1)
            joined = affine(hidden, kernels, tf.pad(bias, [[0, 2 * bias.shape[0]]]))
            return tf.split(joined, 3, -1)
        q = affine(hidden, self.query_kernel, bias)
        return q, affine(hidden, self.key_kernel, None), affine(hidden, self.value_kernel, None)

    def _scores(self, q, k, r, segments):
        """Returns scores by key [B, N, Q, S] without distances, and those by distance [B, N, Q, L].

        Shape: `q` with r_w [B, Q, A], `k` with its segments [B, N, S, H + C], `segments` [B, Q, C].
        """
        N, H = self.config.num_attention_heads, self.config.head_size
        content, position, segment = (
            tf.convert_to_tensor(bias) * H**-0.5
            for bias in (self.content_bias, self.position_bias, self.segment_bias)
        )
        same, other = tf.unstack(tf.convert_to_tensor(self.segment_embeddings))
        q = split_heads(q * H**-0.5, N)  # [B, N, Q, H]
        by_distance = tf.matmul(q + (position - content)[:, None], r, transpose_b=True)
        difference = (same - other)[:, :, None]  # [N, H, 1]
        towards_same = (q + (segment - content)[:, None]) @ difference  # [B, N, Q, 1]
        q = tf.concat([q, towards_same * segments[:, None]], -1)  # [B, N, Q, H + C]
        return tf.matmul(q, k, transpose_b=True), by_distance

    def _attend(self, scores, v, bias, training, seed):
        """Returns the context [B, Q, A] and the probabilities [B, N, Q, S]."""
        rate = self.config.attention_probs_dropout_prob if training else 0.0
        probabilities = attention_probabilities(scores, bias, rate, seed)
        return join_heads(tf.matmul(probabilities, v)), probabilities

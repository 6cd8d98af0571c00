"""The softmax over the vocabulary, worked out once: for the loss, its gradient and for sampling."""

from __future__ import annotations

import math

import tensorflow as tf

from model.kernels import fused, sizes
from training.randomness import inverse_cdf


@tf.custom_gradient
def unnormalized_softmax(logits: tf.Tensor):
    """exp(logits - their maximum) [B, P, V], zeros appended, cut into about sqrt(V) blocks.

    No gradient passes through it.

    Returns:
        [B, P, W, W], W = ceil(sqrt(V)).
    """
    B, P, V = sizes(logits)
    W = math.isqrt(V - 1) + 1
    exponentials = _exponentials(logits, tf.reduce_max(logits, -1, keepdims=True))
    # Not fused: with the zeros inside, the exponentials are no longer worked out in parallel.
    exponentials = tf.pad(exponentials, [[0, 0], [0, 0], [0, W * W - V]])
    return tf.reshape(exponentials, [B, P, W, W]), lambda upstream: None


@tf.custom_gradient
def cross_entropy(logits: tf.Tensor, softmax: tf.Tensor, ids: tf.Tensor):
    """Cross entropy of a softmax over V.

    Args:
        logits: float32 [B, P, V].
        softmax: `unnormalized_softmax(logits)`.
        ids: int32 [B, P].

    Returns:
        -log softmax(logits)[ids], float32 [B, P].
    """
    total = tf.reduce_sum(tf.reduce_sum(softmax, -1), -1)  # [B, P]
    chosen = tf.gather(logits, ids, batch_dims=2) - tf.reduce_max(logits, -1)

    def gradient(upstream):
        return _cross_entropy_gradient(softmax, total, ids, upstream, logits.shape[-1]), None, None

    return tf.math.log(total) - chosen, gradient


@fused
def _exponentials(logits, largest):
    return tf.exp(logits - largest)


@fused
def _cross_entropy_gradient(softmax, total, ids, upstream, V):
    flat = tf.reshape(softmax, [*sizes(ids), softmax.shape[-1] ** 2])
    share = (upstream / total)[..., None]
    return flat[..., :V] * share - tf.where(tf.range(V) == ids[..., None], upstream[..., None], 0.0)


def sample_tokens(softmax: tf.Tensor, uniform: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Draws from a softmax by inverting its distribution function.

    The same distribution as adding Gumbel noise and taking the largest, for two random numbers per
    draw instead of V. First a block of about sqrt(V) tokens is drawn, then a token of the block, so
    that sums stay short and exact enough in float32.

    Args:
        softmax: `unnormalized_softmax` of the logits, float32 [B, P, W, W].
        uniform: float32 [B, P, 2] in [0, 1).
        vocab_size: V.

    Returns:
        Token ids, int32 [B, P].
    """
    block = inverse_cdf(tf.reduce_sum(softmax, axis=-1), uniform[..., 0])  # [B, P]
    token = inverse_cdf(tf.gather(softmax, block, batch_dims=2), uniform[..., 1])
    # The last token stands for any index that rounding in a parallel sum may push past the end.
    return tf.minimum(block * softmax.shape[-1] + token, vocab_size - 1)

"""The softmax over the vocabulary, computed once for the loss, its gradient and sampling.

A CPU keeps it in blocks of tokens. On a GPU or TPU it stays flat, [B * P, V], as splitting V into
blocks would copy all of it to another layout.
"""

from __future__ import annotations

import math

import tensorflow as tf

from convbert.model.kernels import exponentials_of, fused, running_on_cpu_only, sizes
from convbert.training.randomness import inverse_cdf, sum_columns


@tf.custom_gradient
def unnormalized_softmax(logits: tf.Tensor):
    """Computes exp(logits - maximum) [B, P, V], zero-padded and split into about sqrt(V) blocks.

    No gradient passes through it. Returns [B, P, W, W], W = ceil(sqrt(V)); on a GPU or TPU
    [B * P, V].
    """
    B, P, V = sizes(logits)
    if not running_on_cpu_only():
        flat = tf.reshape(logits, [-1, V])
        return tf.exp(flat - tf.reduce_max(flat, -1, keepdims=True)), lambda upstream: None
    W = _block_size(V)
    exponentials = exponentials_of(logits, tf.reduce_max(logits, -1, keepdims=True))
    # Not fused: together with the padding, the exponentials would not be computed in parallel.
    exponentials = tf.pad(exponentials, [[0, 0], [0, 0], [0, W * W - V]])
    return tf.reshape(exponentials, [B, P, W, W]), lambda upstream: None


@tf.custom_gradient
def cross_entropy(logits: tf.Tensor, softmax: tf.Tensor, ids: tf.Tensor):
    """Computes the cross entropy of a softmax over V.

    Shape: logits float32 [B, P, V], their `unnormalized_softmax`, ids int32 [B, P] ->
    -log softmax(logits)[ids], float32 [B, P].
    """
    if softmax.shape.rank == 2:
        return _flat_cross_entropy(logits, softmax, ids)
    total = tf.reduce_sum(tf.reduce_sum(softmax, -1), -1)  # [B, P]
    chosen = tf.gather(logits, ids, batch_dims=2) - tf.reduce_max(logits, -1)

    def gradient(upstream):
        return _cross_entropy_gradient(softmax, total, ids, upstream, logits.shape[-1]), None, None

    return tf.math.log(total) - chosen, gradient


def most_likely(logits: tf.Tensor) -> tf.Tensor:
    """Returns the token with the largest logit, [B, P, V] -> int32 [B, P]."""
    if running_on_cpu_only():
        return tf.argmax(logits, axis=-1, output_type=tf.int32)
    flat = tf.argmax(tf.reshape(logits, [-1, logits.shape[-1]]), -1, output_type=tf.int32)
    return tf.reshape(flat, sizes(logits)[:-1])


def _flat_cross_entropy(logits, softmax, ids):
    """`cross_entropy` and its gradient for a softmax [B * P, V]."""
    V = logits.shape[-1]
    total = tf.reduce_sum(softmax, -1)  # [B * P]
    flat, is_chosen = tf.reshape(logits, [-1, V]), tf.range(V) == tf.reshape(ids, [-1, 1])
    # A sum fuses with the pass above; a lookup would wait until all logits are stored.
    chosen = tf.reduce_sum(tf.where(is_chosen, flat, 0.0), -1) - tf.reduce_max(flat, -1)

    def gradient(upstream):
        upstream = tf.reshape(upstream, [-1, 1])
        to_flat = softmax * (upstream / total[:, None]) - tf.where(is_chosen, upstream, 0.0)
        return tf.reshape(to_flat, sizes(logits)), None, None

    return tf.reshape(tf.math.log(total) - chosen, sizes(ids)), gradient


def _block_size(V):
    return math.isqrt(V - 1) + 1  # the ceiling of sqrt(V)


@fused
def _cross_entropy_gradient(softmax, total, ids, upstream, V):
    flat = tf.reshape(softmax, [*sizes(ids), softmax.shape[-1] ** 2])
    share = (upstream / total)[..., None]
    return flat[..., :V] * share - tf.where(tf.range(V) == ids[..., None], upstream[..., None], 0.0)


def sample_tokens(softmax: tf.Tensor, uniform: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Samples from a softmax by inverting its distribution function.

    The distribution is that of the largest logit after adding Gumbel noise, with two random numbers
    per draw instead of V. Draws a block of about sqrt(V) tokens, then a token of the block, so that
    sums stay short and exact enough in float32.

    Shape: `unnormalized_softmax` of the logits, `uniform` float32 [B, P, 2] in [0, 1) -> token ids,
    int32 [B, P].
    """
    if softmax.shape.rank == 2:
        return _sample_flat(softmax, uniform)
    block = inverse_cdf(tf.reduce_sum(softmax, axis=-1), uniform[..., 0])  # [B, P]
    token = inverse_cdf(tf.gather(softmax, block, batch_dims=2), uniform[..., 1])
    # Clips an index that rounding in a parallel sum pushed past the end to the last token.
    return tf.minimum(block * softmax.shape[-1] + token, vocab_size - 1)


def _sample_flat(softmax, uniform):
    """`sample_tokens` from a softmax [B * P, V]; draws the same tokens as the block form."""
    V = softmax.shape[-1]
    W = _block_size(V)
    noise = tf.reshape(uniform, [-1, 2])
    in_block = tf.one_hot(tf.range(V) // W, W)  # [V, W]
    block = inverse_cdf(sum_columns(softmax, in_block), noise[:, 0])  # [B * P]
    index = block[:, None] * W + tf.range(W)  # [B * P, W]
    weights = tf.gather(softmax, tf.minimum(index, V - 1), batch_dims=1)
    token = inverse_cdf(tf.where(index < V, weights, 0.0), noise[:, 1])
    return tf.reshape(tf.minimum(block * W + token, V - 1), sizes(uniform)[:2])

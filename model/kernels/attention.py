"""What surrounds the two matrix products of attention."""

from __future__ import annotations

import tensorflow as tf

from model.kernels.fusion import fused, last_axis_mean, running_on_cpu_only, sizes
from model.kernels.stateless_dropout import drop, dropout_reference


def attention_probabilities(
    scores: tf.Tensor, bias: tf.Tensor, rate: float, seed: tf.Tensor | None
) -> tf.Tensor:
    """dropout(softmax(scores + bias)).

    Args:
        scores: [B, N, S, S].
        bias: [B, 1, 1, S] or of rank 0; receives no gradient.
        rate: of the dropout.
        seed: int32 [2] of the dropout; not read at a rate of 0.
    """

    @tf.custom_gradient
    def probabilities(scores):
        # Not fused: XLA's reductions over the last axis are slow on CPUs, this softmax is not.
        undropped = tf.nn.softmax(scores + bias)

        def gradient(upstream):
            return _attention_probabilities_gradient(upstream, undropped, seed, rate)

        dropped = undropped if rate == 0.0 else drop(undropped, seed, rate)
        return dropped, gradient

    return probabilities(scores)


def attention_probabilities_reference(
    scores: tf.Tensor, bias: tf.Tensor, rate: float, seed: tf.Tensor | None
) -> tf.Tensor:
    """`attention_probabilities`, readable."""
    return dropout_reference(tf.nn.softmax(scores + bias), rate, seed)


@fused
def _attention_probabilities_gradient(upstream, undropped, seed, rate):
    dtype, upstream = undropped.dtype, tf.cast(upstream, tf.float32)
    if rate > 0.0:
        upstream = drop.plain(upstream, seed, rate)
    undropped = tf.cast(undropped, tf.float32)
    slope = last_axis_mean(upstream * undropped) * tf.cast(sizes(undropped)[-1], tf.float32)
    return tf.cast((upstream - slope) * undropped, dtype)


def split_heads(tensor: tf.Tensor, num_heads: int) -> tf.Tensor:
    """[B, S, N * H] -> [B, N, S, H]."""
    B, S, A = sizes(tensor)
    return _swap_tokens_and_heads(tf.reshape(tensor, [B, S, num_heads, A // num_heads]))


def split_heads_reference(tensor: tf.Tensor, num_heads: int) -> tf.Tensor:
    """`split_heads`, readable."""
    return tf.stack(tf.split(tensor, num_heads, axis=-1), axis=1)


def join_heads(tensor: tf.Tensor) -> tf.Tensor:
    """[B, N, S, H] -> [B, S, N * H]."""
    B, N, S, H = sizes(tensor)
    return tf.reshape(_swap_tokens_and_heads(tensor), [B, S, N * H])


def join_heads_reference(tensor: tf.Tensor) -> tf.Tensor:
    """`join_heads`, readable."""
    return tf.concat(tf.unstack(tensor, axis=1), axis=-1)


@tf.custom_gradient
def _swap_tokens_and_heads(tensor):
    """[B, S, N, H] <-> [B, N, S, H]."""
    return _swap(tensor), _swap


def _swap(tensor):
    if not running_on_cpu_only():  # where a compiler makes it part of the products around it
        return tf.transpose(tensor, [0, 2, 1, 3])
    # The bits as integers: of floats, TensorFlow makes a oneDNN transposition, whose start takes
    # 50 us, five times as long as all of it does for a short text.
    integers = {2: tf.int16, 4: tf.int32}[tensor.dtype.size]
    swapped = tf.transpose(tf.bitcast(tensor, integers), [0, 2, 1, 3])
    return tf.bitcast(swapped, tensor.dtype)

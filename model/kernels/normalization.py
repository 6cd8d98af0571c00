"""Layer normalisation at the end of a block: dropout, residual and norm in few passes."""

from __future__ import annotations

import tensorflow as tf

from convbert.common.backend import built_for_tpu
from convbert.model.kernels.fusion import (
    custom_gradient,
    fused,
    is_fused,
    last_axis_mean,
    sum_to_last_axis,
)
from convbert.model.kernels.stateless_dropout import drop, dropout, dropout_reference, dropping


def add_and_norm(
    inputs: tf.Tensor,
    residual: tf.Tensor | None,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Layer normalisation of residual + dropout(inputs), computed in float32 for any dtype.

    Args:
        inputs: [..., D], in the result's dtype.
        residual: [..., D], or None.
        gamma, beta: [D] float32, scale and shift.
        seed: int32 [2] of the dropout; not read at a rate of 0.
    """
    if rate > 0.0:
        # In a separate pass, or every pass of the norm would compute the hash again.
        inputs = _drop_then_add(inputs, residual, seed, rate)
        residual = None
    if residual is None:
        residual = tf.zeros([], inputs.dtype)

    @custom_gradient
    def norm(inputs, residual, gamma, beta):
        def gradient(upstream):
            to_sum, by_gamma = _add_and_norm_gradient(upstream, inputs, residual, gamma, epsilon)
            to_residual = to_sum if residual.shape.rank else tf.zeros([], residual.dtype)
            to_beta = sum_to_last_axis(tf.cast(upstream, tf.float32))
            return to_sum, to_residual, sum_to_last_axis(by_gamma), to_beta

        return _add_and_norm(inputs, residual, gamma, beta, epsilon), gradient

    return norm(inputs, residual, gamma, beta)


def add_and_norm_reference(inputs, residual, gamma, beta, epsilon, rate=0.0, seed=None):
    """Readable form of `add_and_norm`."""
    total = dropout_reference(inputs, rate, seed) + (0.0 if residual is None else residual)
    mean, variance = tf.nn.moments(total, -1, keepdims=True)
    return (total - mean) / tf.sqrt(variance + epsilon) * gamma + beta


def _drop_then_add(inputs, residual, seed, rate):
    if residual is None:
        return dropout(inputs, rate, seed)

    fuse, drops = is_fused(inputs), dropping(inputs, seed, rate)

    @custom_gradient
    def drop_and_add(inputs, residual):
        both = _drop_and_add(inputs, residual, seed, rate) if fuse else drops(inputs) + residual
        return both, lambda upstream: (drops(upstream), upstream)

    return drop_and_add(inputs, residual)


@fused
def _drop_and_add(inputs, residual, seed, rate):
    return drop.plain(inputs, seed, rate) + residual


@fused
def _add_and_norm(inputs, residual, gamma, beta, epsilon):
    normed, _ = _normalized(inputs, residual, epsilon)
    return tf.cast(normed * gamma + beta, inputs.dtype)


@fused
def _add_and_norm_gradient(upstream, inputs, residual, gamma, epsilon):
    """Returns the gradient of the normalised sum, and the summands of gamma's gradient."""
    normed, deviation = _normalized(inputs, residual, epsilon)
    upstream = tf.cast(upstream, tf.float32)
    scaled = upstream * gamma
    mean, slope = last_axis_mean(scaled), last_axis_mean(scaled * normed)
    to_sum = (scaled - mean - normed * slope) / deviation
    return tf.cast(to_sum, inputs.dtype), upstream * normed


def _normalized(inputs, residual, epsilon):
    """Returns the normalised sum [..., D] and its standard deviation [..., 1], float32."""
    total = tf.cast(inputs, tf.float32) + tf.cast(residual, tf.float32)
    mean = last_axis_mean(total)
    centered = total - mean
    # In one pass, which is part of the product before it. The difference of squares loses digits
    # where the mean is much larger than the deviation; bfloat16 has lost them before.
    if built_for_tpu() and inputs.dtype == tf.bfloat16:
        variance = tf.maximum(last_axis_mean(total * total) - mean * mean, 0.0)
    else:
        variance = last_axis_mean(centered * centered)
    deviation = tf.sqrt(variance + epsilon)
    return centered / deviation, deviation

"""Activations, in float32 inside and rounded once."""

from __future__ import annotations

import math

import tensorflow as tf

from model.kernels.fusion import fused


@tf.custom_gradient
def gelu(inputs: tf.Tensor):
    """x Φ(x), with the exact normal distribution function Φ, as BERT has it. Any shape."""
    return fused_gelu(inputs), lambda upstream: _gelu_gradient(inputs, upstream)


def gelu_reference(inputs: tf.Tensor) -> tf.Tensor:
    """`gelu`, readable."""
    return inputs * 0.5 * (1.0 + tf.math.erf(inputs / 2.0**0.5))


@fused
def fused_gelu(inputs):
    """`gelu` without a gradient of its own; `fused_gelu.plain` is for use in fused functions."""
    x = tf.cast(inputs, tf.float32)
    return tf.cast(x * _normal_cdf(x), inputs.dtype)


@fused
def _gelu_gradient(inputs, upstream):
    x = tf.cast(inputs, tf.float32)
    density = tf.exp(-0.5 * x * x) * (2.0 * math.pi) ** -0.5
    slope = _normal_cdf(x) + x * density
    return tf.cast(tf.cast(upstream, tf.float32) * slope, inputs.dtype)


def _normal_cdf(x):
    return 0.5 * (1.0 + tf.math.erf(x * 0.5**0.5))


def gelu_new(inputs: tf.Tensor) -> tf.Tensor:
    """GELU by tanh, as in the first code of BERT and in GPT-2; in float32 inside. Any shape."""
    x = tf.cast(inputs, tf.float32)
    return tf.cast(tf.nn.gelu(x, approximate=True), inputs.dtype)

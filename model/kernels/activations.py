"""Activations, computed in float32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf
import tf_keras

from convbert.common.backend import built_for_litert
from convbert.model.kernels.fusion import custom_gradient, fused


def _in_float32(function: Callable) -> Callable:
    """Fuses `function` and computes it in float32; the result has the first input's dtype."""

    @fused
    def rounded_once(*inputs):
        return tf.cast(function(*(tf.cast(x, tf.float32) for x in inputs)), inputs[0].dtype)

    return rounded_once


def gelu(inputs: tf.Tensor) -> tf.Tensor:
    """x Φ(x), with the exact normal distribution function Φ, as in BERT. Any shape."""
    return tf.nn.gelu(inputs) if built_for_litert() else _gelu(inputs)  # LiteRT has no erf


@custom_gradient
def _gelu(inputs):
    return fused_gelu(inputs), lambda upstream: _gelu_gradient(inputs, upstream)


def gelu_reference(inputs):
    """Readable form of `gelu`."""
    return inputs * 0.5 * (1.0 + tf.math.erf(inputs / 2.0**0.5))


def _normal_cdf(x):
    return 0.5 * (1.0 + tf.math.erf(x * 0.5**0.5))


# Has no custom gradient; fused functions call `fused_gelu.plain`.
fused_gelu = _in_float32(lambda x: x * _normal_cdf(x))


@_in_float32
def _gelu_gradient(x, upstream):
    density = tf.exp(-0.5 * x * x) * (2.0 * math.pi) ** -0.5
    return upstream * (_normal_cdf(x) + x * density)


@custom_gradient
def gelu_new(inputs: tf.Tensor):
    """GELU by tanh, as in BERT's first code, GPT-2 and XLNet. Any shape."""
    return fused_gelu_new(inputs), lambda upstream: _gelu_new_gradient(inputs, upstream)


def gelu_new_reference(inputs):
    """Readable form of `gelu_new`."""
    return tf.nn.gelu(inputs, approximate=True)


_GELU_SCALE, _GELU_CUBE = (2.0 / math.pi) ** 0.5, 0.044715


def _tanh_of_gelu(x):
    return tf.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))


fused_gelu_new = _in_float32(lambda x: 0.5 * x * (1.0 + _tanh_of_gelu(x)))


@_in_float32
def _gelu_new_gradient(x, upstream):
    tanh = _tanh_of_gelu(x)
    inner = _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBE * x * x)
    slope = 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner
    return upstream * slope


# Activations that Keras does not know by these names, or does not fuse.

_ACTIVATIONS = {"gelu": gelu, "gelu_new": gelu_new, "silu": tf.nn.silu}


def activation_function(name: str | None) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns an activation by its name in EncoderConfig or Keras; "gelu" is exact and fused."""
    return _ACTIVATIONS.get(name or "") or tf_keras.activations.get(name)

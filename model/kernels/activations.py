"""Activations, in float32 inside and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf
import tf_keras

from backend import built_for_litert
from model.kernels.fusion import fused

_GELU_SCALE, _GELU_CUBE = (2.0 / math.pi) ** 0.5, 0.044715


def _fused_activation(function: Callable) -> Callable:
    """`function` of float32 for tensors of any dtype, as one kernel; its gradient is another."""

    @fused
    def forward(inputs):
        return tf.cast(function(tf.cast(inputs, tf.float32)), inputs.dtype)

    @fused
    def backward(inputs, upstream):
        x = tf.cast(inputs, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = function(x)
        return tf.cast(tape.gradient(outputs, x, tf.cast(upstream, tf.float32)), inputs.dtype)

    @tf.custom_gradient
    def activation(inputs):
        return forward(inputs), lambda upstream: backward(inputs, upstream)

    return activation


_gelu = _fused_activation(lambda x: x * (0.5 * (1.0 + tf.math.erf(x * 0.5**0.5))))
_gelu_new = _fused_activation(
    lambda x: 0.5 * x * (1.0 + tf.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x)))
)


def gelu(inputs: tf.Tensor) -> tf.Tensor:
    """x Φ(x), with the exact normal distribution function Φ, as BERT has it. Any shape."""
    return tf.nn.gelu(inputs) if built_for_litert() else _gelu(inputs)  # LiteRT has no erf


def gelu_reference(inputs):
    """`gelu`, readable."""
    return inputs * 0.5 * (1.0 + tf.math.erf(inputs / 2.0**0.5))


def gelu_new(inputs: tf.Tensor) -> tf.Tensor:
    """GELU by tanh, as in the first code of BERT, in GPT-2 and XLNet. Any shape."""
    return _gelu_new(inputs)


def gelu_new_reference(inputs):
    """`gelu_new`, readable."""
    return tf.nn.gelu(inputs, approximate=True)


# Those that Keras does not know by these names, or that are not fused there.
_ACTIVATIONS = {"gelu": gelu, "gelu_new": gelu_new, "silu": tf.nn.silu}


def activation_function(name: str | None) -> Callable[[tf.Tensor], tf.Tensor]:
    """An activation by its name in EncoderConfig, or Keras'; "gelu" is the exact one, fused."""
    return _ACTIVATIONS.get(name) or tf_keras.activations.get(name)

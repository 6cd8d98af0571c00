"""Dropout as a pure function of its seed."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from convbert.model.kernels.fusion import fused, is_fused, sizes


def dropout(inputs: tf.Tensor, rate: float, seed: tf.Tensor | None = None) -> tf.Tensor:
    """Applies dropout as a pure function of its seed, so that a resumed run repeats itself.

    Args:
        rate: share of the elements set to zero.
        seed: int32 [2], or [3] with the number of a part of a batch: equal parts along the first
            axis keep the same elements as the whole batch with the seed of [2]. Unused at rate
            0, as in inference.
    """
    if rate == 0.0:
        return inputs

    drops = dropping(inputs, seed, rate)

    @tf.custom_gradient
    def dropped(inputs):
        return drops(inputs), drops

    return dropped(inputs)


def dropout_reference(inputs, rate, seed=None):
    """Readable form of `dropout`: multiplies by the mask and rescales."""
    if rate == 0.0:
        return inputs
    return inputs * tf.cast(_kept(inputs, seed, rate), inputs.dtype) / (1.0 - rate)


def dropping(
    like: tf.Tensor, seed: tf.Tensor | None, rate: float
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns dropout for tensors of the shape of `like`, such as an input and its gradient.

    Op by op, the mask is computed once for all of them.
    """
    if rate == 0.0:
        return lambda inputs: inputs
    if is_fused(like):
        return lambda inputs: drop(inputs, seed, rate)
    kept = _kept(like, seed, rate)
    return lambda inputs: _scaled_where(kept, inputs, rate)


@fused
def drop(inputs, seed, rate):
    """`dropout` at a rate above 0, without a custom gradient; fused functions call
    `drop.plain`."""
    return _scaled_where(_kept(inputs, seed, rate), inputs, rate)


def _scaled_where(kept, inputs, rate):
    scaled = inputs * tf.cast(1.0 / (1.0 - rate), inputs.dtype)
    return tf.where(kept, scaled, tf.zeros([], inputs.dtype))


def _kept(like, seed, rate):
    """Returns True for elements of `like` to keep: those whose hash of (seed, index) >= rate.

    The hash is integer arithmetic that fuses with its consumer, so no mask is stored: the backward
    pass computes it again. TensorFlow's generator takes 5 ns per word on a CPU, a tenth of a
    training step. Whole words are compared, as bfloat16 has only 128 uniform floats and would drop
    13/128 of the elements at a rate of 1/10.
    """
    first, second, *part = tf.unstack(tf.bitcast(seed, tf.uint32))
    # Via int64, which has ranges and casts on GPUs.
    size = tf.size(like, tf.int64)
    index = tf.cast(tf.cast(tf.range(size), tf.uint64), tf.uint32)
    if part:
        first += part[0] * tf.cast(tf.cast(size, tf.uint64), tf.uint32)
    words = mix_bits(mix_bits(index + first) ^ second)
    return tf.reshape(words >= round(rate * 2**32), sizes(like))


def hashed_uniform(seeds: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Returns numbers in [0, 1), float32 [n], as a function of seeds, int32 [n], and index."""
    words = mix_bits(tf.bitcast(seeds, tf.uint32) + tf.constant(0x9E3779B9, tf.uint32))
    words = mix_bits(words ^ mix_bits(tf.bitcast(tf.cast(index, tf.int32), tf.uint32)))
    return tf.cast(tf.bitwise.right_shift(words, tf.constant(8, tf.uint32)), tf.float32) * 2.0**-24


def mix_bits(words):
    """Mixes the bits of uint32 by a bijection (from hash-prospector)."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words ^= tf.bitwise.right_shift(words, tf.constant(shift, tf.uint32))
        words *= tf.constant(factor, tf.uint32)
    return words ^ tf.bitwise.right_shift(words, tf.constant(16, tf.uint32))

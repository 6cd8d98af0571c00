"""Randomness as a function of (seed, step): no state to save, nothing that depends on devices."""

from __future__ import annotations

import random

import tensorflow as tf
from tf_keras.src import backend as keras_backend

from convbert.common.backend import running_on_cpu_only


def seed_initializers(seed: int | str) -> None:
    """Makes what Keras' initializers draw from here on a function of the seed.

    With `tf_keras.utils.set_random_seed`, TensorFlow would forget the kernels of all traced
    functions, and take seconds to prepare them again.
    """
    keras_backend._SEED_GENERATOR.generator = random.Random(seed)  # no public way does it alone


def step_seed(seed: int | tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """The int32 [2] seed of a training step."""
    folded = tf.random.fold_in(tf.stack([tf.cast(seed, tf.int32), 0]), tf.cast(step, tf.int32))
    return folded & tf.int32.max


def split_seed(seed: tf.Tensor, parts: int) -> list[tf.Tensor]:
    """Several independent int32 [2] seeds from one.

    Their sign bits are cleared: XLA and TensorFlow's own kernels read negative seeds differently.
    What a seed of [3] ends with, the number of a part of the batch, stays.
    """
    seeds = tf.random.split(seed[:2], parts) & tf.int32.max
    if seed.shape[0] > 2:
        seeds = tf.concat([seeds, tf.repeat(seed[None, 2:], parts, 0)], 1)
    return tf.unstack(seeds)


def part_seed(seed: tf.Tensor, part: tf.Tensor | int) -> tf.Tensor:
    """The int32 [3] seed of dropout in one of the equal parts that a batch is cut into."""
    return tf.concat([seed, [tf.cast(part, tf.int32)]], 0)


def uniform_for_batch(seed: tf.Tensor, batch_size: tf.Tensor, shape: list) -> tf.Tensor:
    """Uniform noise [batch_size, *shape] in [0, 1) for this replica's part of the global batch.

    Drawn for the global batch and cut, so that an example's noise does not depend on the number of
    replicas. Meant for small noise: every replica draws all of it.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync if context is not None else 1
    words = tf.random.stateless_uniform(
        [replicas * batch_size, *shape], seed, None, None, tf.uint32
    )
    # The same floats with and without XLA, which by itself takes other bits of the same words.
    noise = tf.cast(tf.bitwise.right_shift(words, 8), tf.float32) * 2.0**-24
    if replicas == 1:
        return noise
    first = context.replica_id_in_sync_group * batch_size
    # A compiler does not see the size of noise[first : ...].
    return tf.slice(noise, [first, *(0 for _ in shape)], [batch_size, *shape])


def inverse_cdf(weights: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Draws an index i with probability weights[..., i] / sum, never one whose weight is 0.

    `weights` are float [..., n], not negative. `uniform` is noise of their dtype in [0, 1); its
    shape broadcasts with [...], and is the result's, int32.
    """
    if running_on_cpu_only():
        cumulative = tf.cumsum(weights, axis=-1)
    else:
        n = weights.shape[-1]
        cumulative = sum_columns(weights, tf.linalg.band_part(tf.ones([n, n]), 0, -1))
    threshold = uniform * cumulative[..., -1]
    passed = cumulative <= threshold[..., None]
    return tf.reduce_sum(tf.cast(passed, tf.int32), axis=-1)


def sum_columns(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """float32 [..., n] times float32 [n, m] of ones and zeros, within a rounding of float32.

    For a TPU, which rounds the factors of a product to bfloat16 and adds up in float32: the values
    are cut into three numbers each that are not changed by that.
    """
    total = 0.0
    for _ in range(3):
        # By their bits: compilers may leave out a cast there and back.
        bits = tf.bitcast(values, tf.int32) & -(2**16)
        part = tf.bitcast(bits, tf.float32)
        values -= part
        total += tf.matmul(part, chosen)
    return total

"""Randomness as a function of (seed, step): without state, and independent of devices."""

from __future__ import annotations

import random

import tensorflow as tf
from tf_keras.src import backend as keras_backend

from convbert.common.backend import running_on_cpu_only


def seed_initializers(seed: int | str) -> None:
    """Seeds Keras' initializers.

    `tf_keras.utils.set_random_seed` would also make TensorFlow discard the kernels of all traced
    functions, which take seconds to prepare again.
    """
    # No public function does only this.
    keras_backend._SEED_GENERATOR.generator = random.Random(seed)


def step_seed(seed: int | tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Returns the int32 [2] seed of a training step."""
    folded = tf.random.fold_in(tf.stack([tf.cast(seed, tf.int32), 0]), tf.cast(step, tf.int32))
    return folded & tf.int32.max


def uniform_for_batch(seed: tf.Tensor, batch_size: tf.Tensor, shape: list) -> tf.Tensor:
    """Returns uniform noise [batch_size, *shape] in [0, 1) for this replica's part of the batch.

    It is drawn for the global batch and sliced, so that an example's noise does not depend on the
    number of replicas. Meant for small noise, as every replica draws all of it.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync if context is not None else 1
    words = tf.random.stateless_uniform(
        [replicas * batch_size, *shape], seed, None, None, tf.uint32
    )
    # The same floats with and without XLA, which would otherwise use other bits of the same words.
    noise = tf.cast(tf.bitwise.right_shift(words, 8), tf.float32) * 2.0**-24
    if replicas == 1:
        return noise
    first = context.replica_id_in_sync_group * batch_size
    # A compiler cannot infer the size of noise[first : ...].
    return tf.slice(noise, [first, *(0 for _ in shape)], [batch_size, *shape])


def inverse_cdf(weights: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Draws an index i with probability weights[..., i] / sum, never one of weight 0.

    `weights` are non-negative float [..., n]. `uniform` is noise in [0, 1) of their dtype, whose
    shape broadcasts with [...]. The result is int32, in the shape of `uniform`.
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
    """Multiplies float32 [..., n] by float32 [n, m] of ones and zeros, with float32 precision.

    A TPU rounds the factors of a product to bfloat16 and sums in float32, so each value is split
    into three numbers that bfloat16 holds exactly.
    """
    total = 0.0
    for _ in range(3):
        # On the bits: compilers may remove a cast to bfloat16 and back.
        bits = tf.bitcast(values, tf.int32) & -(2**16)
        part = tf.bitcast(bits, tf.float32)
        values -= part
        total += tf.matmul(part, chosen)
    return total

"""Independent seeds of stateless random operations."""

from __future__ import annotations

import tensorflow as tf


def split_seeds(seed: tf.Tensor | None, count: int) -> list[tf.Tensor]:
    """Derives independent seeds from a seed of [2] or [3], whose last is kept; None: at random."""
    if seed is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    # Clears the sign bit before and after: XLA reads negative seeds as other numbers.
    seed = tf.convert_to_tensor(seed, tf.int32) & tf.int32.max
    seeds = tf.random.split(seed[:2], count) & tf.int32.max
    if seed.shape[0] > 2:
        seeds = tf.concat([seeds, tf.repeat(seed[None, 2:], count, 0)], 1)
    return tf.unstack(seeds)

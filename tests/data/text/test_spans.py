"""The order of possible answers."""

import numpy as np
import tensorflow as tf

from data.text.windows import _by_example_then_score


def test_the_order_is_that_of_a_stable_sort_by_two_keys():
    draw = np.random.default_rng(0)
    special = np.float32([0.0, -0.0, np.nan, np.inf, -np.inf, -1e-45, 1e-45, 3.5, -2e4])
    score = np.concatenate([draw.choice(special, 500), draw.normal(-5, 3, 500).astype(np.float32)])
    example = draw.integers(0, 9, 1000)
    order = tf.function(_by_example_then_score)(tf.constant(example), tf.constant(score))
    finite = np.where(np.isnan(score), np.finfo(np.float32).min, score)
    np.testing.assert_array_equal(order, np.lexsort((-finite, example)))
    none = _by_example_then_score(tf.zeros([0], tf.int64), tf.zeros([0], tf.float32))
    assert none.shape == [0]

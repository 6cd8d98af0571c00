"""Ragged operations against TensorFlow's own."""

import numpy as np
import pytest
import tensorflow as tf

from data.text.layout import repeat, row_ids, take


@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [3], [0, 2, 0, 0, 4, 1, 0]])
def test_against_tensorflow(lengths):
    ragged = tf.ragged.range(lengths)
    np.testing.assert_array_equal(row_ids(ragged), ragged.value_rowids())
    values = tf.range(len(lengths)) * 7
    counts = tf.constant(lengths, tf.int32)
    np.testing.assert_array_equal(repeat(values, counts), tf.repeat(values, counts))
    shorter = tf.constant(lengths, tf.int64) // 2
    assert take(ragged, shorter).to_list() == [list(range(n // 2)) for n in lengths]

"""Micro-batches give what the whole batch gives, dropout included; so do replicas."""

import numpy as np
import pytest
import tensorflow as tf

from model.kernels.stateless_dropout import dropout
from tests.training.test_loop import B, losses, make, weights
from training.distribution import create_strategy


def test_parts_keep_what_the_whole_keeps():
    inputs, seed = tf.ones([6, 5, 4]), tf.constant([3, 4])
    whole = dropout(inputs, 0.3, seed)
    parts = [dropout(inputs[:2], 0.3, tf.constant([3, 4, number])) for number in range(3)]
    np.testing.assert_array_equal(tf.concat(parts, 0), whole)
    assert not np.array_equal(parts[0], parts[1])


@pytest.fixture(scope="module")
def whole():
    trainer = make(dropout=0.1)
    return losses(trainer, 8), weights(trainer)


@pytest.mark.parametrize(
    ("strategy", "micro_batches", "xla"),
    [
        ("one_device", 2, False),
        ("one_device", B, False),
        ("one_device", 4, True),
        ("mirrored:2", 1, False),
        ("mirrored:2", 2, False),
        ("mirrored:2", 2, True),
    ],
)
def test_the_same_is_learned(whole, strategy, micro_batches, xla):
    strategy = create_strategy(strategy)
    trainer = make(strategy=strategy, dropout=0.1, xla=xla, micro_batches=micro_batches)
    np.testing.assert_allclose(losses(trainer, 8), whole[0], rtol=1e-5)
    for found, expected in zip(weights(trainer), whole[1], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)

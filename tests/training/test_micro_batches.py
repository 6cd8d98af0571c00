"""Micro-batches give what the whole batch gives, dropout included; so do replicas."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from errors import InputError
from model.backbone import rematerialize
from model.kernels.stateless_dropout import dropout
from tests.training.test_loop import corpus, losses, make, weights
from training.distribution import create_strategy
from training.loop import Evaluator


def test_parts_keep_what_the_whole_keeps():
    inputs, seed = tf.ones([6, 5, 4]), tf.constant([3, 4])
    whole = dropout(inputs, 0.3, seed)
    parts = [dropout(inputs[:2], 0.3, tf.constant([3, 4, number])) for number in range(3)]
    np.testing.assert_array_equal(tf.concat(parts, 0), whole)
    assert not np.array_equal(parts[0], parts[1])


@functools.cache
def whole(objective):
    """Losses, weights and metrics of held-out batches of a run with whole batches."""
    trainer = make(dropout=0.1, objective=objective)
    learned = losses(trainer, 8), weights(trainer)
    return *learned, evaluate(trainer.objective, tf.distribute.get_strategy(), 1)


def evaluate(objective, strategy, micro_batches):
    evaluator = Evaluator(
        objective,
        lambda: corpus()().take(3),
        seed=1,
        strategy=strategy,
        micro_batches=micro_batches,
    )
    return evaluator.evaluate(tf.constant(-1))


@pytest.mark.parametrize(
    ("objective", "strategy", "micro_batches", "options"),
    [
        pytest.param(
            *("replaced_token_detection", "one_device", 2, {}),
            marks=pytest.mark.slow,  # needs two traces of two networks
        ),
        pytest.param(
            *("replaced_token_detection", "mirrored:2", 2, {"xla": True, "rematerialized": True}),
            marks=pytest.mark.slow,  # needs half a minute to compile
        ),
        pytest.param(
            *("masked_lm", "one_device", 4, {"xla": True, "rematerialized": True}),
            marks=pytest.mark.slow,  # needs half a minute to compile
        ),
        pytest.param(
            *("self_critic", "one_device", 2, {"rematerialized": True}),
            marks=pytest.mark.slow,  # needs two traces of its two passes
        ),
        pytest.param(
            *("self_critic", "mirrored:2", 2, {"xla": True}),
            marks=pytest.mark.slow,  # needs half a minute to compile
        ),
        pytest.param(
            *("permutation_lm", "one_device", 4, {"xla": True, "rematerialized": True}),
            marks=pytest.mark.slow,  # needs half a minute to compile
        ),
        pytest.param(
            *("permutation_lm", "mirrored:2", 2, {}),
            marks=pytest.mark.slow,  # needs a trace of two replicas
        ),
        ("masked_lm", "mirrored:2", 1, {}),
    ],
)
def test_the_same_is_learned(objective, strategy, micro_batches, options):
    expected_losses, expected_weights, expected_metrics = whole(objective)
    strategy = create_strategy(strategy)
    trainer = make(
        strategy=strategy,
        dropout=0.1,
        objective=objective,
        micro_batches=micro_batches,
        xla=options.get("xla", False),
    )
    if "rematerialized" in options:
        rematerialize(trainer.objective)
    np.testing.assert_allclose(losses(trainer, 8), expected_losses, rtol=1e-5)
    for found, expected in zip(weights(trainer), expected_weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    found = evaluate(trainer.objective, strategy, micro_batches)
    assert found == pytest.approx(expected_metrics, rel=1e-3)


def test_a_backbone_that_cannot_is_named():
    with pytest.raises(InputError):
        rematerialize(tf.Module())

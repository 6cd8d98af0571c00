"""Micro-batches give what the whole batch gives, dropout included; so do replicas."""

import numpy as np
import pytest
import tensorflow as tf

from errors import InputError
from model.backbone import rematerialize
from model.kernels.stateless_dropout import dropout
from tests.training.test_loop import B, corpus, losses, make, weights
from training.distribution import create_strategy
from training.loop import Evaluator


def test_parts_keep_what_the_whole_keeps():
    inputs, seed = tf.ones([6, 5, 4]), tf.constant([3, 4])
    whole = dropout(inputs, 0.3, seed)
    parts = [dropout(inputs[:2], 0.3, tf.constant([3, 4, number])) for number in range(3)]
    np.testing.assert_array_equal(tf.concat(parts, 0), whole)
    assert not np.array_equal(parts[0], parts[1])


@pytest.fixture(scope="module", params=["replaced_token_detection", "masked_lm"])
def whole(request):
    """Objective, losses, weights and metrics of held-out batches."""
    trainer = make(dropout=0.1, objective=request.param)
    learned = losses(trainer, 8), weights(trainer)
    return request.param, *learned, evaluate(trainer.objective, tf.distribute.get_strategy(), 1)


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
    ("strategy", "micro_batches", "options"),
    [
        ("one_device", 2, {}),
        ("one_device", B, {}),
        ("one_device", 4, {"xla": True}),
        ("one_device", 1, {"rematerialized": True}),
        ("one_device", 2, {"rematerialized": True, "xla": True}),
        ("mirrored:2", 1, {}),
        ("mirrored:2", 2, {}),
        ("mirrored:2", 2, {"xla": True, "rematerialized": True}),
    ],
)
def test_the_same_is_learned(whole, strategy, micro_batches, options):
    objective, expected_losses, expected_weights, expected_metrics = whole
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
    with pytest.raises(InputError, match="`rematerialize`"):
        rematerialize(tf.Module())

"""Micro-batches give what the whole batch gives, dropout included; so do replicas."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.model.backbone import rematerialize
from convbert.training.distribution import create_strategy
from convbert.training.loop import Evaluator
from convbert.training.objective import Objective
from tests.model_support import TINY_MODERN
from tests.training.test_loop import corpus, losses, make, weights


def made(objective, **options):
    """Of "modern ...", the encoder is the modern one, with mixed attention and Canon layers."""
    modern, _, objective = objective.rpartition(" ")
    config = TINY_MODERN.replace(token_mixer="mixed", canon_kernel_size=3) if modern else None
    return make(dropout=0.1, objective=objective, config=config, **options)


@functools.cache
def whole(objective):
    """Losses, weights and metrics of held-out batches of a run with whole batches."""
    trainer = made(objective)
    learned = losses(trainer, 8), weights(trainer)
    return *learned, evaluate(trainer.objective, tf.distribute.get_strategy(), 1)


def evaluate(objective, strategy, micro_batches):
    options = {"seed": 1, "strategy": strategy, "micro_batches": micro_batches}
    evaluator = Evaluator(objective, lambda: corpus()().take(3), **options)
    return evaluator.evaluate(-1)


class MeanOfFirstIds(Objective):
    """The loss is the mean over the examples of a batch, without those that are all padding."""

    def prepare(self, features, seed):
        return features

    def normalizers(self, batch):
        return {"examples": tf.reduce_sum(tf.cast(batch["input_mask"][:, 0], tf.float32))}

    def loss(self, batch, normalizers, *, training, seed=None):
        values = tf.cast(batch["input_ids"][:, 0] * batch["input_mask"][:, 0], tf.float32)
        return tf.reduce_sum(values) / normalizers["examples"], {}


@pytest.mark.parametrize("strategy", ["one_device", "mirrored:2"])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_loss_of_an_evaluation_is_the_mean_of_all_examples(strategy, micro_batches):
    """The last batch has one example and three rows of padding."""
    ids, mask = np.arange(12), np.arange(12) < 9
    arrays = {"input_ids": ids[:, None], "input_mask": mask[:, None]}
    arrays = {name: value.astype(np.int32) for name, value in arrays.items()}
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(4)
    options = {"strategy": create_strategy(strategy), "micro_batches": micro_batches}
    found = Evaluator(MeanOfFirstIds(), lambda: batches, seed=1, **options).evaluate(-1)
    assert found["loss"] == pytest.approx(ids[mask].mean())


@pytest.mark.parametrize(
    ("objective", "strategy", "micro_batches", "xla", "rematerialized"),
    [
        ("masked_lm", "mirrored:2", 1, False, False),
        # Half a minute each to trace two networks or passes, or to compile.
        *(
            pytest.param(*values, marks=pytest.mark.slow)
            for values in (
                ("replaced_token_detection", "one_device", 2, False, False),
                ("replaced_token_detection", "mirrored:2", 2, True, True),
                ("masked_lm", "one_device", 4, True, True),
                ("self_critic", "one_device", 2, False, True),
                ("self_critic", "mirrored:2", 2, True, False),
                ("permutation_lm", "one_device", 4, True, True),
                ("permutation_lm", "mirrored:2", 2, False, False),
                ("modern masked_lm", "one_device", 2, True, True),
            )
        ),
    ],
)
def test_the_same_is_learned(objective, strategy, micro_batches, xla, rematerialized):
    expected_losses, expected_weights, expected_metrics = whole(objective)
    strategy = create_strategy(strategy)
    trainer = made(objective, strategy=strategy, micro_batches=micro_batches, xla=xla)
    if rematerialized:
        rematerialize(trainer.objective)
    np.testing.assert_allclose(losses(trainer, 8), expected_losses, rtol=1e-5)
    for found, expected in zip(weights(trainer), expected_weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    found = evaluate(trainer.objective, strategy, micro_batches)
    assert found == pytest.approx(expected_metrics, rel=1e-3)


def test_a_backbone_that_cannot_is_named():
    with pytest.raises(InputError):
        rematerialize(tf.Module())

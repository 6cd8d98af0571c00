"""Runs of a sweep share what is traced, and each is the run that it would be alone."""

import os
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow.compat.v2

from finetune import learner
from finetune.catalogue import load_task
from finetune.hparams import RunSettings, resolve_hparams
from finetune.run import fine_tuned
from finetune.settings import Settings
from finetune.trial import Trial
from model import build_encoder
from tests.finetune.kinds_support import HPARAMS, REVIEW, declared, reviews
from tests.model_support import TINY
from training.checkpointing import latest_checkpoint

GIVEN = {**HPARAMS, "max_train_examples": 40}
GIVEN |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CONTEXT = types.SimpleNamespace(strategy=tf.distribute.get_strategy())
INITS = ("pretrained", "random")
LAMB = {"optimizer": "lamb", "layerwise_lr_decay": 0.0}
GRID = {"num_train_epochs": [1, 2], "layerwise_lr_decay": [0.8, 0.6]}


def weights(folder):
    path = latest_checkpoint(str(folder))
    names = [name for name, _ in tf.train.list_variables(path) if name.startswith("objective")]
    return {name: tf.train.load_variable(path, name) for name in names}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    lines = {
        split: table[["review", "verdict"]].to_csv(index=False).splitlines()
        for split, table in (("train", reviews(60)), ("dev", reviews(20, 1)))
    }
    return load_task(declared(tmp_path_factory.mktemp("reviews"), lines, REVIEW))


def run(model_dir, task, output_dir, hparams=(), grid=(), inits=(), **run_settings):
    """The results of the runs by what tells them apart in their folders' names."""
    settings = Settings(
        model_dir=str(model_dir),
        data_dir="",
        output_dir=str(output_dir),
        tasks=[task],
        run=RunSettings(save_checkpoints_steps=3, **run_settings),
        recipe={},
        per_task={},
        given={**GIVEN, **dict(hparams)},
        grid=dict(grid),
        inits=inits,
        train=True,
        show_errors=0,
    )
    with fine_tuned(settings) as results:
        return {os.path.relpath(folder, output_dir): result for folder, result in results.items()}


def test_a_run_of_a_sweep_is_what_it_is_alone(model_dir, task, tmp_path):
    shared = run(model_dir, task, tmp_path / "all", grid=GRID, num_trials=2)
    name = next(reversed(shared))
    hparams = {key: shared[name]["hparams"][key] for key in (*GRID, "seed")}
    assert list(hparams.values()) == [2, 0.6, 1]
    ((alone, result),) = run(model_dir, task, tmp_path / "alone", hparams).items()
    assert result["scores"] == shared[name]["scores"]
    ended = weights(tmp_path / "all" / name), weights(tmp_path / "alone" / alone)
    tf.nest.map_structure(np.testing.assert_array_equal, *ended)


def test_initial_weights_do_not_depend_on_the_run_before(model_dir, task, tmp_path):
    """Pre-trained and random ones in turn, of one learner and of a new one each."""
    hparams = {"max_steps": 1, "learning_rate": 1e-6}
    shared = run(model_dir, task, tmp_path / "all", hparams, inits=INITS, num_trials=2)
    for number, (name, result) in enumerate(shared.items()):
        own, folder = {**hparams, "seed": result["seed"]}, tmp_path / f"alone_{number}"
        ((alone, _),) = run(model_dir, task, folder, own, inits=(result["init"],)).items()
        ended = weights(tmp_path / "all" / name), weights(folder / alone)
        tf.nest.map_structure(np.testing.assert_array_equal, *ended)


@pytest.mark.parametrize(
    ("before", "now", "count"),
    [
        ({"learning_rate": 1e-4}, {"learning_rate": 1e-3, "seed": 3, "init": "random"}, 1),
        ({"num_train_epochs": 1}, {"num_train_epochs": 2}, 1),
        ({"train_batch_size": 8}, {"train_batch_size": 4}, 2),
        ({"weight_decay_rate": 0.0}, {"weight_decay_rate": 0.1}, 2),
        ({"layerwise_lr_decay": 0.0}, {"layerwise_lr_decay": 0.8}, 2),
        ({"hidden_dropout_prob": 0.0}, {"hidden_dropout_prob": 0.1}, 2),
        ({"loss_reduction": "sum"}, {"loss_reduction": "mean"}, 2),
        ({**LAMB, "seed": 0}, {**LAMB, "seed": 1}, 2),
    ],
)
def test_what_is_in_the_graph_is_traced_anew(before, now, count, task, monkeypatch):
    made = []

    class Stub:
        objective = types.SimpleNamespace(encoder=build_encoder(TINY))

        def __init__(self, trial, context):
            made.append(trial)

        def begin(self, trial, context):
            pass

    monkeypatch.setattr(learner, "Learner", Stub)
    learners, data = learner.Learners(), types.SimpleNamespace(train=range(80), task=task)
    for values in (before, now):
        learners.of(Trial("folder", 0, {}, resolve_hparams(values, task, TINY), data), CONTEXT)
    assert len(made) == count

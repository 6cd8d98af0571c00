"""Runs: the best weights are kept, training resumes, sweeps share a graph."""

import itertools
import json
import os
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow.compat.v2

import convbert
from convbert.finetune import trial
from convbert.finetune.declaration import load_task
from convbert.finetune.evaluations import Evaluations
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.learner import may_follow
from convbert.finetune.plan import Trial, make_plan
from convbert.finetune.run import fine_tune_all
from convbert.training.checkpointing import latest_checkpoint
from convbert.training.loop import Trainer
from convbert.training.monitoring import read_metrics
from tests.finetune.kinds_support import HPARAMS, REVIEW, declared_reviews, reviews
from tests.model_support import TINY

EVALUATED = {**HPARAMS, "keep": "best", "eval_steps": 7, "learning_rate": 5e-3, "seed": 1}


def fine_tune(model_dir, output_dir, hparams):
    """40 steps; the result, and the scores on the way by step."""
    given = {"columns": REVIEW, "hparams": hparams, "output_dir": output_dir}
    # Labels of a third are wrong, so that scores go up and down.
    train = reviews(160)
    wrong = train["verdict"].map({"yes": "no", "no": "yes"})
    train["verdict"] = train["verdict"].where(np.arange(160) % 3 != 0, wrong)
    run = convbert.fine_tune(model_dir, train, reviews(60, 1), **given)
    result = json.loads((pathlib.Path(run.folder) / "result.json").read_text())
    rows = [row for row in read_metrics(run.folder) if row["split"] == "dev"]
    return run, result, {row["step"]: row["accuracy"] for row in rows}


@pytest.fixture(scope="module")
def best(model_dir, tmp_path_factory):
    return fine_tune(model_dir, tmp_path_factory.mktemp("best"), EVALUATED)


def test_the_best_weights_are_kept(best):
    run, result, scores = best
    assert list(scores) == [7, 14, 21, 28, 35, 40]
    assert scores[40] < max(scores.values())
    highest = max(scores.values())
    assert run.scores["dev"]["accuracy"] == highest
    assert result["best_step"] == next(step for step, score in scores.items() if score == highest)
    answers = convbert.load(run.folder).predict(reviews(60, 1))
    right = np.mean(answers.label == reviews(60, 1)["verdict"].to_numpy())
    assert 100.0 * right == pytest.approx(highest)
    assert not (pathlib.Path(run.folder) / "best").exists()


@pytest.mark.slow  # needs ten seconds: a run
def test_evaluation_changes_nothing_else(best, model_dir, tmp_path):
    """The score of the last step is that of a run that is never evaluated."""
    _, _, scores = best
    hparams = {**EVALUATED, "keep": "last", "eval_steps": None}
    run, result, none = fine_tune(model_dir, tmp_path, hparams)
    assert none == {}
    assert "best_step" not in result
    assert run.scores["dev"]["accuracy"] == scores[40]


class Killed(Exception):
    pass


PLACES = (
    (Evaluations, "add", 2),  # the best weights are written, the score is not
    (Trainer, "train", 6),
    (trial, "keep_weights_only", 1),  # the best weights are there, the result is not
)


@pytest.mark.slow  # needs twenty-five seconds: four runs
def test_a_run_that_is_killed_ends_the_same(best, model_dir, tmp_path, monkeypatch):
    """Three times, at the number-th call of a method."""
    for owner, method, number in PLACES:
        calls, whole = itertools.count(1), getattr(owner, method)

        def dying(*arguments, calls=calls, whole=whole, number=number, **options):
            found = whole(*arguments, **options)
            if next(calls) == number:
                raise Killed
            return found

        with monkeypatch.context() as patched:
            patched.setattr(owner, method, dying)
            with pytest.raises(Killed):
                fine_tune(model_dir, tmp_path, EVALUATED)
    run, result, scores = fine_tune(model_dir, tmp_path, EVALUATED)
    assert scores == best[2]
    assert run.scores == best[0].scores
    accuracy = convbert.load(run.folder).evaluate(reviews(60, 1)).scores["accuracy"]
    assert accuracy == pytest.approx(run.scores["dev"]["accuracy"])
    assert not (pathlib.Path(run.folder) / "best").exists()
    assert result["best_step"] == best[1]["best_step"]


GIVEN = {**HPARAMS, "max_train_examples": 40}
GIVEN |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
LAMB = {"optimizer": "lamb", "layerwise_lr_decay": 0.0}
GRID = {"num_train_epochs": [1, 2], "layerwise_lr_decay": [0.8, 0.6]}


def weights(folder):
    path = latest_checkpoint(str(folder))
    names = [name for name, _ in tf.train.list_variables(path) if name.startswith("objective")]
    return {name: tf.train.load_variable(path, name) for name in names}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return load_task(declared_reviews(tmp_path_factory.mktemp("reviews"), 60, 20))


def swept(model_dir, task, output_dir, hparams=(), grid=(), inits=(), **run_settings):
    """The results of the runs by what tells them apart in their folders' names."""
    folders = {"model_dir": str(model_dir), "data_dir": "", "output_dir": str(output_dir)}
    given = {**GIVEN, **dict(hparams), "save_checkpoints_steps": 3, **run_settings}
    plan = make_plan([task], {}, given, {}, grid=dict(grid), inits=inits, **folders)
    results = fine_tune_all(plan)
    return {os.path.relpath(folder, output_dir): result for folder, result in results.items()}


@pytest.mark.slow  # needs half a minute: a sweep
def test_a_run_of_a_sweep_is_what_it_is_alone(model_dir, task, tmp_path):
    """Neither a graph that it shares nor the weights of the run before it matter."""
    inits = ("pretrained", "random")
    shared = swept(model_dir, task, tmp_path / "all", grid=GRID, inits=inits, num_trials=2)
    name = next(reversed(shared))
    hparams = {key: shared[name]["hparams"][key] for key in (*GRID, "seed")}
    assert [shared[name]["init"], *hparams.values()] == ["random", 2, 0.6, 1]
    found = swept(model_dir, task, tmp_path / "alone", hparams, inits=("random",))
    ((alone, result),) = found.items()
    assert result["scores"] == shared[name]["scores"]
    ended = weights(tmp_path / "all" / name), weights(tmp_path / "alone" / alone)
    tf.nest.map_structure(np.testing.assert_array_equal, *ended)


@pytest.mark.parametrize(
    ("before", "now", "shared"),
    [
        ({"learning_rate": 1e-4}, {"learning_rate": 1e-3, "seed": 3}, True),
        ({}, {"init": "random"}, False),
        ({"train_batch_size": 8}, {"train_batch_size": 4}, False),
        ({"weight_decay_rate": 0.0}, {"weight_decay_rate": 0.1}, False),
        ({"hidden_dropout_prob": 0.0}, {"hidden_dropout_prob": 0.1}, False),
        ({"loss_reduction": "sum"}, {"loss_reduction": "mean"}, False),
        ({**LAMB, "seed": 0}, {**LAMB, "seed": 1}, False),
    ],
)
def test_what_is_in_the_graph_is_traced_anew(before, now, shared, task, monkeypatch):
    data = types.SimpleNamespace(train=range(80), task=task)
    runs = [Trial("folder", 0, {}, resolve_hparams(v, task, TINY), data) for v in (before, now)]
    strategy = tf.distribute.get_strategy()
    assert may_follow(*runs, strategy) is shared
    kind = type("Own", (type(task.plugin),), {"name": "own"})()  # whose head may be another
    monkeypatch.setattr(type(task), "plugin", kind)
    assert not may_follow(*runs, strategy)

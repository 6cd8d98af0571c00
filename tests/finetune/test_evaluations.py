"""Runs: the best weights are kept, training resumes, sweeps share a graph; tables in memory."""

import itertools
import json
import os
import pathlib
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow.compat.v2

import convbert
from convbert.common.errors import InputError
from convbert.finetune import evaluations
from convbert.finetune.declaration import load_task
from convbert.finetune.evaluations import Evaluations
from convbert.finetune.frames import DEV_SHARE, _declared, _splits
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.learner import may_follow
from convbert.finetune.plan import Trial, make_plan
from convbert.finetune.run import fine_tune_all
from convbert.training.checkpointing import latest_checkpoint
from convbert.training.loop import Trainer
from convbert.training.monitoring import read_metrics
from tests.finetune.kinds_support import HPARAMS, REVIEW, declared_reviews, rejects, reviews
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
    assert scores[40] < (highest := max(scores.values()))
    assert run.scores["dev"]["accuracy"] == highest
    assert result["best_step"] == next(step for step, score in scores.items() if score == highest)
    answers = convbert.load(run.folder).predict(reviews(60, 1))  # by the task's names of columns
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


def test_without_a_score_the_last_weights_count(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(evaluations, "keep_weights_only", lambda *given: kept.append(given[-1]))
    task = types.SimpleNamespace(metrics=["pearson"])
    trial = {"hparams": types.SimpleNamespace(keep="best", eval_steps=2), "folder": str(tmp_path)}
    trial |= {"data": types.SimpleNamespace(task=task), "num_steps": 8}
    found = Evaluations(None, types.SimpleNamespace(**trial), 0)
    best = [found.add(step, {"pearson": of}) or found.best_step
            for step, of in ((2, None), (4, None), (6, 9.0), (8, 9.0))]  # fmt: skip
    assert (best, kept) == ([2, 4, 6, 6], [2, 4, 6])


class Killed(Exception):
    pass


PLACES = (
    (Evaluations, "add", 2),  # the best weights are written, the score is not
    (Trainer, "train", 6),
    (evaluations, "keep_weights_only", 1),  # the best weights are there, the result is not
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


def test_a_table_is_learned_and_a_finished_run_is_returned(model_dir, tmp_path):
    train, dev, test = reviews(240), reviews(60, 1), reviews(20, 2)
    given = {"output_dir": tmp_path / "own", "hparams": HPARAMS, "columns": REVIEW}
    test["verdict"] = None
    state = np.random.get_state()[1].tolist()
    run = convbert.fine_tune(model_dir, train, dev, test=test, **given)
    assert np.random.get_state()[1].tolist() == state  # the caller's
    assert run.scores["dev"]["accuracy"] > 80.0
    assert os.path.exists(run.report)
    before = os.stat(os.path.join(run.folder, "result.json")).st_mtime_ns
    assert convbert.fine_tune(model_dir, train, dev, test=test, **given) == run
    assert os.stat(os.path.join(run.folder, "result.json")).st_mtime_ns == before

    more = reviews(30, 3)  # other rows to predict
    assert convbert.fine_tune(model_dir, train, dev, test=more, **given) == run
    predictions = pathlib.Path(run.folder, "predictions", "test.jsonl").read_text()
    answers = [json.loads(line)["prediction"] for line in predictions.splitlines()]
    assert answers == convbert.load(run.folder).predict(more).label.tolist()


@pytest.mark.slow  # needs eight seconds: a run
def test_the_kind_follows_from_the_columns(model_dir, tmp_path):
    table, hparams = reviews(60).assign(context="of another kind"), {**HPARAMS, "max_steps": 2}
    tagged = table[["words", "tags"]].assign(words=[np.array(words) for words in table["words"]])
    run = convbert.fine_tune(model_dir, tagged, output_dir=tmp_path / "tags", hparams=hparams)
    model = convbert.load(run.folder)
    assert (model.kind, model.labels) == ("tagging", ["A", "B", "C"])
    assert set(run.scores) == {"dev"}  # a tenth of the table
    stars = table.rename(columns={"review": "text", "stars": "label"})[["text", "label", "context"]]
    with pytest.raises(InputError):  # pandas makes floats of integers where one is missing
        convbert.fine_tune(model_dir, stars, output_dir=tmp_path / "stars", hparams=hparams)


def test_a_rare_label_may_be_drawn_for_dev():
    table = pd.DataFrame({"text": [f"w{n}" for n in range(40)], "label": "common"})
    (drawn, *_) = table.sample(frac=DEV_SHARE, random_state=0).index
    table.loc[drawn, "label"] = "rare"
    columns = {"text_a": "text", "label": "label"}
    task = _declared({"train": table}, "table", "classification", columns, ())
    assert task.labels == ("common", "rare")
    assert {*_splits({"train": table})["train"].frame["label"]} == {"common"}


def test_labels_outside_of_the_range_of_training_are_scored(model_dir, tmp_path):
    """`label_range`, that of the labels, is for training; correlations need none."""
    stars = reviews(40).rename(columns={"review": "text", "stars": "label"})[["text", "label"]]
    test = stars.assign(label=[-3.0, 9.0] * 20)
    given = {"output_dir": tmp_path, "hparams": {**HPARAMS, "max_steps": 2}}
    run = convbert.fine_tune(model_dir, stars, test=test, kind="regression", **given)
    model = convbert.load(run.folder)
    assert model.description["task"]["label_range"] == [2.5, 3.5]
    assert model.evaluate(test).scores["pearson"] is not None


def test_an_error_names_the_row(model_dir, tmp_path):
    dev = reviews(9, 1)
    dev.loc[4, "verdict"] = "maybe"
    given = {"columns": REVIEW, "output_dir": tmp_path}
    with rejects("`dev`, row 4"):
        convbert.fine_tune(model_dir, reviews(40), dev, **given)
    train = reviews(40).set_index(np.arange(100, 140))  # dev is drawn from it
    train.iloc[3, train.columns.get_loc("review")] = None
    with rejects("`train`, row 3"):
        convbert.fine_tune(model_dir, train, **given)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: {"train": table.iloc[:0]},
        lambda table: {"train": table.iloc[:4]},  # too few to draw a dev row
        lambda table: {"train": table, "name": "cola"},  # whose published scores are others'
        lambda table: {"train": table, "hparams": {"learning_rat": 1.0}},
        lambda table: {"train": table[["text"]]},
        lambda table: {"train": table.assign(text_pair="a"), "dev": table},
        lambda table: {"train": "train.csv"},
        lambda table: {"train": table, "dev": table["text"]},
        lambda table: {"train": table.assign(label="yes"), "kind": "regression"},
        lambda table: {"train": table, "model_dir": "/nowhere"},
        lambda table: {"train": table, "hparams": {"do_train": False}},
    ],
)
def test_bad_input_is_an_error_and_leaves_no_file(model_dir, tmp_path, change):
    table = reviews(20).rename(columns={"review": "text", "verdict": "label"})
    table = table[["text", "label"]]
    given = {"model_dir": model_dir, "output_dir": tmp_path, **change(table)}
    with pytest.raises((ValueError, KeyError)):  # InputError is a ValueError
        convbert.fine_tune(**given)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

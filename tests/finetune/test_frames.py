"""`convbert.fine_tune`: tables in memory are fine-tuned on as files are."""

import json
import os
import pathlib

import numpy as np
import pandas as pd
import pytest

import convbert
from convbert.common.errors import InputError
from convbert.finetune.frames import DEV_SHARE, _declared
from tests.finetune.kinds_support import HPARAMS, REVIEW, rejects, reviews


def test_a_table_is_learned_and_a_finished_run_is_returned(model_dir, tmp_path):
    train, dev, test = reviews(240), reviews(60, 1), reviews(20, 2)
    given = {"output_dir": tmp_path / "own", "hparams": HPARAMS}
    given["columns"] = REVIEW
    test["verdict"] = None
    run = convbert.fine_tune(model_dir, train, dev, test=test, **given)
    assert run.scores["dev"]["accuracy"] > 80.0
    assert os.path.exists(run.report)

    answers = convbert.load(run.folder).predict(dev)  # by the task's names of columns
    right = np.mean(answers.label == dev["verdict"].to_numpy())
    assert 100.0 * right == pytest.approx(run.scores["dev"]["accuracy"])

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


@pytest.mark.slow  # needs ten seconds: another run
def test_the_range_of_a_regression_is_that_of_the_labels(model_dir, tmp_path):
    stars = reviews(60).rename(columns={"review": "text", "stars": "label"})[["text", "label"]]
    given = {"output_dir": tmp_path, "hparams": {**HPARAMS, "max_steps": 2}}
    run = convbert.fine_tune(model_dir, stars, kind="regression", **given)
    assert convbert.load(run.folder).description["task"]["label_range"] == [2.5, 3.5]


def test_a_rare_label_may_be_drawn_for_dev():
    table = pd.DataFrame({"text": [f"w{n}" for n in range(40)], "label": "common"})
    (drawn, *_) = table.sample(frac=DEV_SHARE, random_state=0).index
    table.loc[drawn, "label"] = "rare"
    columns = {"text_a": "text", "label": "label"}
    task, data = _declared({"train": table}, "table", "classification", columns, ())
    assert task.labels == ("common", "rare")
    assert {*data["train"].frame["label"]} == {"common"}


def test_labels_outside_of_the_range_of_training_are_scored(model_dir, tmp_path):
    """`label_range` is for training; Spearman's and Pearson's correlations need none."""
    stars = reviews(40).rename(columns={"review": "text", "stars": "label"})[["text", "label"]]
    test = stars.assign(label=[-3.0, 9.0] * 20)
    given = {"output_dir": tmp_path, "hparams": {**HPARAMS, "max_steps": 2}}
    run = convbert.fine_tune(model_dir, stars, test=test, kind="regression", **given)
    assert convbert.load(run.folder).evaluate(test).scores["pearson"] is not None


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
        lambda table: {"train": table, "hparams": {"learning_rat": 1.0}},
        lambda table: {"train": table[["text"]]},
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

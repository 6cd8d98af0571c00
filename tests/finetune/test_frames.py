"""`convbert.fine_tune`: tables in memory are fine-tuned on as files are."""

import contextlib
import json
import os
import pathlib

import numpy as np
import pandas as pd
import pytest

import convbert
from common import files
from common.errors import InputError
from finetune import frames
from tests import command_support
from tests.finetune.kinds_support import HPARAMS, REVIEW, rejects, reviews


def files_in(folder):
    return [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]


def test_a_table_is_learned_as_by_the_command(model_dir, tmp_path):
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

    for name, table in {"train": train, "dev": dev, "test": test}.items():
        table.to_json(tmp_path / f"{name}.jsonl", orient="records", lines=True)
    files = {name: f"{name}.jsonl" for name in ("train", "dev", "test")}
    fields = {"name": "table", "kind": "classification", "files": files, "columns": REVIEW}
    declared = tmp_path / "table.json"
    declared.write_text(json.dumps(fields))
    flags = {"model_dir": model_dir, "task": declared, "output_dir": tmp_path / "command"}
    flags |= {"hparams": json.dumps(HPARAMS), "init": "pretrained"}
    flags = [f"--{name}={value}" for name, value in flags.items()]
    done = command_support.run("run_finetuning.py", *flags)
    assert done.returncode == 0, done.stderr
    (result,) = (tmp_path / "command").glob("table/*/trial_0/result.json")
    assert json.loads(result.read_text())["scores"] == run.scores


def test_the_kind_follows_from_the_columns(model_dir, tmp_path):
    table = reviews(60).assign(context="of another kind")
    hparams = {**HPARAMS, "num_train_epochs": 1}
    tagged = table[["words", "tags"]].assign(words=[np.array(words) for words in table["words"]])
    run = convbert.fine_tune(model_dir, tagged, output_dir=tmp_path / "tags", hparams=hparams)
    model = convbert.load(run.folder)
    assert (model.kind, model.labels) == ("tagging", ["A", "B", "C"])
    stars = table.rename(columns={"review": "text", "stars": "label"})[["text", "label", "context"]]
    run = convbert.fine_tune(model_dir, stars, output_dir=tmp_path / "stars", hparams=hparams)
    model = convbert.load(run.folder)
    assert model.kind == "regression"
    assert model.description["task"]["label_range"] == [2.5, 3.5]
    assert set(run.scores) == {"dev"}  # a tenth of the table


@pytest.mark.parametrize("count", [2, 20])
def test_whole_numbers_in_floats_may_be_labels(count):
    """pandas makes floats of integers where one is missing."""
    table = pd.DataFrame({"text": ["a"] * 40, "label": np.arange(40.0) % count})
    with pytest.raises(InputError):
        frames._kind(table, None)
    assert frames._kind(table.assign(label=table["label"] + 0.5), None) == "regression"
    assert frames._kind(table.assign(label=table["label"].astype(int)), None) == "classification"


def test_a_finished_run_in_a_folder_that_cannot_be_written(model_dir, tmp_path, monkeypatch):
    given = {"columns": REVIEW, "output_dir": tmp_path}
    given["hparams"] = {**HPARAMS, "max_steps": 1}
    run = convbert.fine_tune(model_dir, reviews(40), **given)

    @contextlib.contextmanager
    def read_only(path):
        raise InputError(f"{path}: cannot be written")
        yield

    monkeypatch.setattr(files, "replacing", read_only)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert convbert.fine_tune(model_dir, reviews(40), **given) == run
    with pytest.raises(InputError):
        convbert.fine_tune(model_dir, reviews(40), seed=1, **given)
    given["hparams"] = {**HPARAMS, "max_steps": 2}
    with pytest.raises(InputError):
        convbert.fine_tune(model_dir, reviews(40), **given)


def test_an_error_names_the_row(model_dir, tmp_path):
    dev = reviews(9, 1)
    dev.loc[4, "verdict"] = "maybe"
    given = {"columns": REVIEW, "output_dir": tmp_path}
    with rejects("`dev`, row 4"):
        convbert.fine_tune(model_dir, reviews(40), dev, **given)
    train = reviews(40).set_index(np.arange(100, 140))  # of which dev is drawn
    train.iloc[3, train.columns.get_loc("review")] = None
    with rejects("`train`, row 3"):
        convbert.fine_tune(model_dir, train, **given)


def test_labels_that_only_dev_has_count_as_wrong(model_dir, tmp_path):
    """Also of a network that has hardly been trained."""
    dev = reviews(9, 1).assign(verdict="maybe")
    given = {"columns": REVIEW, "output_dir": tmp_path}
    given["hparams"] = {**HPARAMS, "max_steps": 2, "learning_rate": 1e-7, "max_train_examples": 24}
    run = convbert.fine_tune(model_dir, reviews(40), dev, unseen_labels=True, **given)
    assert run.scores["dev"]["accuracy"] == 0.0
    result = json.loads((pathlib.Path(run.folder) / "result.json").read_text())
    assert (result["train_rows"], result["steps"]) == (24, 2)
    model = convbert.load(run.folder)
    assert model.labels == ["no", "yes", "maybe"]
    assert "maybe" not in model.predict(dev["review"].tolist()).label


@pytest.mark.parametrize(
    "change",
    [
        lambda table: {"train": table.iloc[:0]},
        lambda table: {"train": table.iloc[:4]},  # of which no row is drawn for dev
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
    assert files_in(tmp_path) == []


def test_a_label_without_weight_is_not_learned(model_dir, tmp_path):
    for label, other, weighted in (("no", "yes", "no"), (0, 1, 0), ("no", "yes", "maybe")):
        train, dev = (reviews(80, seed).replace({"no": label, "yes": other}) for seed in (0, 1))
        given = {"columns": REVIEW, "hparams": {**HPARAMS, "class_weights": {weighted: 0.0}}}
        given["output_dir"] = tmp_path / f"{weighted}"
        if weighted == "maybe":
            with pytest.raises(InputError):
                convbert.fine_tune(model_dir, train, dev, **given)
            continue
        run = convbert.fine_tune(model_dir, train, dev, **given)
        assert set(convbert.load(run.folder).predict(dev).label) == {str(other)}

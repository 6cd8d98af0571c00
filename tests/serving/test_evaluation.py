"""`Model.evaluate` and `serving.evaluate`: as run_finetuning.py scores."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from convbert.common.errors import InputError
from convbert.finetune.kinds.base import Predicted
from convbert.finetune.task_files import read_split
from tests.command_support import run
from tests.model_support import slow_but
from tests.serving.conftest import TASKS
from tests.serving.support import evaluated, labelled, write_labelled

ROWS = pd.DataFrame(labelled(TASKS["classification"]()))


@pytest.mark.parametrize(
    "kind", slow_but(["classification"], ["classification", "tagging", "span", "multiple_choice"])
)
def test_scores_are_those_of_the_network(saved, tmp_path, kind):
    path = tmp_path / ("dev.json" if kind == "span" else "dev.jsonl")
    files = {"train": path.name, "dev": path.name}
    own = dataclasses.replace(TASKS[kind](), files=files, folders=(str(tmp_path),))
    write_labelled(path, own)
    found = saved.model(kind).evaluate(path)

    objective, hparams, words = saved.network(kind)
    examples = read_split(own, "", "dev")
    _, outputs, answers = evaluated(objective, own, examples, words, hparams)
    expected = own.plugin.score(Predicted(own, examples, answers, outputs))
    assert set(found.scores) == set(expected)
    for name in own.metrics:
        assert found.scores[name] == pytest.approx(expected[name], abs=1e-3), name


def test_a_table_scores_as_its_file(saved, tmp_path, monkeypatch):
    model, table = saved.model("classification"), ROWS
    path = tmp_path / "test.jsonl"
    table.to_json(path, orient="records", lines=True)
    metrics = ["accuracy", "macro_f1"]
    found = model.evaluate(table, metrics=metrics)
    assert found.scores == model.evaluate(path, metrics=metrics).scores
    assert list(found.scores) == metrics
    for extension, separator in (("csv", ","), ("tsv", "\t")):  # in place of JSON lines
        table.to_csv(tmp_path / f"test.{extension}", sep=separator, index=False)
        same = model.evaluate(tmp_path / f"test.{extension}", metrics=metrics)
        assert same.scores == found.scores
    declared = {
        **model.description["task"],
        "format": "tsv",
        "files": {"train": "a", "dev": "a.csv"},
    }
    monkeypatch.setitem(model.description, "task", declared)  # whatever its files are called
    table.to_csv(tmp_path / "test.csv", sep="\t", index=False)
    assert model.evaluate(tmp_path / "test.csv", metrics=metrics).scores == found.scores
    right = model.predict(table).label == table["verdict"].to_numpy()
    assert found.scores["accuracy"] == pytest.approx(100.0 * np.mean(right))


def test_the_command(saved, tmp_path):
    path, model = tmp_path / "dev.jsonl", saved.directory("classification")
    write_labelled(path, TASKS["classification"]())
    done = run("-m", "convbert.serving.evaluate", f"--model={model}", f"--input={path}", "--json")
    expected = saved.model("classification").evaluate(path).scores
    assert json.loads(done.stdout)["scores"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop(columns="verdict"),
        lambda table: table.assign(verdict="best"),
        lambda table: table.assign(verdict=None),
        lambda table: table.iloc[:0],
        lambda table: "/nowhere.jsonl",
    ],
)
def test_what_cannot_be_scored_is_an_error(saved, change):
    with pytest.raises((InputError, KeyError)):
        saved.model("classification").evaluate(change(ROWS))

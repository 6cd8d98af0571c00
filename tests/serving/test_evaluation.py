"""`Model.evaluate` and `serving.evaluate`: as run_finetuning.py scores, of every kind."""

import dataclasses
import json
import os

import numpy as np
import pandas as pd
import pytest

import convbert
from errors import InputError
from finetune.kinds.predicted import Predicted
from finetune.task_files import read_split
from tests.command_support import run
from tests.serving.conftest import TASKS
from tests.serving.support import evaluated, fine_tuned

DRAW = np.random.default_rng(0)
WORDS = ("the", "city", "was", "Café", "born", "in", "1995")


def texts(count, longest=9):
    return [" ".join(DRAW.choice(WORDS, n)) for n in DRAW.integers(1, longest, count)]


def rows(kind, count=24):
    """Labelled rows by the columns of `tests.serving.support.task`."""
    if kind == "regression":
        stars = DRAW.integers(1, 6, count).astype(float)
        return pd.DataFrame({"review": texts(count), "reply": texts(count), "stars": stars})
    if kind in ("classification", "pairs"):
        verdict = DRAW.choice(["bad", "fair", "good"], count)
        return pd.DataFrame({"review": texts(count), "reply": texts(count), "verdict": verdict})
    if kind == "tagging":
        words = [text.split() for text in texts(count)]
        tags = [DRAW.choice(list("ABCD"), len(item)).tolist() for item in words]
        return pd.DataFrame({"tokens": words, "upos": tags})
    ends = [texts(3) for _ in range(count)]
    found = {"story": texts(count), "asked": texts(count), "ends": ends}
    return pd.DataFrame({**found, "right": DRAW.choice(["A", "B", "C"], count)})


def squad(path):
    """Questions about contexts, some of them answered by a word of it."""
    qas = []
    for number in range(9):
        context = texts(1, 20)[0]
        answer = context.split()[-1]
        start = len(context) - len(answer)
        question = {"id": str(number), "question": texts(1)[0], "is_impossible": False}
        question["answers"] = [{"text": answer, "answer_start": start}]
        qas.append({"context": context, "qas": [question]})
    path.write_text(json.dumps({"data": [{"paragraphs": qas}]}))


def write(path, kind):
    if kind == "span":
        squad(path)
    else:
        rows(kind).to_json(path, orient="records", lines=True)


@pytest.mark.parametrize("kind", TASKS)
def test_scores_are_those_of_the_network(saved, tmp_path, kind):
    own, path = TASKS[kind](), tmp_path / ("dev.json" if kind == "span" else "dev.jsonl")
    write(path, kind)
    found = convbert.load(saved[kind]).evaluate(path)

    objective, hparams, words = fine_tuned(tmp_path / "run", own, num_hidden_layers=1)
    there = dataclasses.replace(
        own, files={**own.files, "dev": path.name}, folders=(str(path.parent),)
    )
    examples = read_split(there, "", "dev")
    _, outputs, answers = evaluated(objective, own, examples, words, hparams)
    expected = own.plugin.score(Predicted(own, examples, answers, hparams, outputs))
    assert set(found.scores) == set(expected)
    for name in own.metrics:
        assert found.scores[name] == pytest.approx(expected[name], abs=1e-3), name


def test_a_table_scores_as_its_file(saved, tmp_path):
    model, table = convbert.load(saved["classification"]), rows("classification")
    path = tmp_path / "test.csv"  # which is not the format of the task's files
    table.to_csv(path, index=False)
    metrics = ["accuracy", "macro_f1", "macro_precision", "macro_recall", "roc_auc"]
    found = model.evaluate(table, metrics=metrics, bootstrap=50)
    assert found.scores == model.evaluate(path, metrics=metrics).scores
    assert list(found.scores) == metrics
    labels = found.by_label()
    assert labels["support"].to_dict() == table["verdict"].value_counts().to_dict()
    assert labels["f1"].mean() == pytest.approx(found.scores["macro_f1"])
    right = model.predict(table).label == table["verdict"].to_numpy()
    assert found.scores["accuracy"] == pytest.approx(100.0 * np.mean(right))
    for name, (low, high) in found.intervals.items():
        assert 0.0 <= low <= found.scores[name] <= high <= 100.0
        assert low < high


def test_errors_of_scores_are_in_the_unit_of_the_labels(saved):
    model, table = convbert.load(saved["regression"]), rows("regression")
    found = model.evaluate(table, metrics=["pearson", "mae", "rmse"]).scores
    difference = model.predict(table).score - table["stars"].to_numpy()
    assert found["mae"] == pytest.approx(np.mean(np.abs(difference)), rel=1e-5)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(difference**2)), rel=1e-5)
    assert model.evaluate(table, metrics="mae").scores == {"mae": found["mae"]}


def test_the_command(saved, tmp_path):
    path = tmp_path / "dev.jsonl"
    write(path, "classification")
    where = os.path.join(os.path.dirname(saved["classification"]), "run")
    done = run("-m", "serving.evaluate", f"--model={where}", f"--input={path}", "--json")
    assert done.returncode == 0, done.stderr
    expected = convbert.load(saved["classification"]).evaluate(path).scores
    assert json.loads(done.stdout)["scores"] == pytest.approx(expected)


def test_what_is_undefined_says_why(saved):
    table = rows("classification").assign(verdict="good")
    found = convbert.load(saved["classification"]).evaluate(table, metrics=["roc_auc"], bootstrap=9)
    assert found.scores == {"roc_auc": None}
    assert "bad" in found.undefined["roc_auc"]
    assert found.intervals == {}


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
        convbert.load(saved["classification"]).evaluate(change(rows("classification")))


def test_a_pretrained_model_has_no_scores(saved):
    with pytest.raises(InputError):
        convbert.load(saved["pretraining"]).evaluate(rows("classification"))

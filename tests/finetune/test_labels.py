"""Labels that are not what they seem: rejected or warned of, with file, names and counts."""

import json

import pytest

from data.vocabulary import Vocabulary
from errors import InputError
from finetune.catalogue import load_task
from finetune.declaration import parse
from finetune.hparams import resolve_hparams
from finetune.task_data import load_task_data
from finetune.task_files import read_split
from tests.finetune.test_task_data import TOKENS
from tests.model_support import TINY

HEADER = "label,text"


def declare(folder, rows, kind="classification", dev=None, **fields):
    """A declared task whose training file has these lines after its header."""
    lines = {"train": rows, "dev": dev or rows[-2:]}
    for split, found in lines.items():
        (folder / f"{split}.csv").write_text("\n".join([HEADER, *found]) + "\n")
    declaration = {
        "kind": kind,
        "files": {split: f"{split}.csv" for split in lines},
        "columns": {"text_a": "text", "label": "label"},
        **fields,
    }
    path = folder / "own.json"
    path.write_text(json.dumps(declaration))
    return str(path)


def read(path):
    task = load_task(path)
    hparams = resolve_hparams({"max_seq_length": 16}, task, TINY)
    return load_task_data(task, "", Vocabulary(TOKENS), hparams, cache_dir=None)


def warnings(capsys):
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if line.startswith("warning: ")]


ROWS = ["pos,one"] * 3 + ["neg,two"] * 2
MANY = ["a,one", "b,two"] * 10


@pytest.mark.parametrize(
    ("rows", "fields", "message"),
    [
        ([*ROWS, "pos ,one"], {}, r"train\.csv.*'pos' \(3 times\) and 'pos ' \(1 time\)"),
        (ROWS[:3], {}, r"train\.csv.*at least two labels.* pos$"),
        (ROWS[:3], {"labels": ["pos", "neg"]}, r"train\.csv.*at least two labels.* 'pos'$"),
    ],
)
def test_labels_that_are_rejected(tmp_path, rows, fields, message):
    path = declare(tmp_path, rows, **fields)
    with pytest.raises(InputError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("rows", "kind", "expected"),
    [
        (ROWS, "classification", []),
        ([*ROWS, "Pos,one"], "classification", ["train.csv", "'pos' (3 times) and 'Pos' (1 time)"]),
        (["Verdict,Review text", *MANY], "classification", ["'Verdict'"]),
        ([*MANY, "c,one", *MANY], "classification", []),  # rare, but not the first
        (
            [f"{n / 7:.3f},one" for n in range(200)],
            "classification",
            ["200 of 200 labels are seen once", "regression"],
        ),
        ([f"sentence {n},one" for n in range(200)], "classification", ["200 of 200", "column"]),
        (["0.5,one", "0.5,two"], "regression", ["every label is 0.5"]),
    ],
)
def test_labels_that_are_warned_of(tmp_path, capsys, rows, kind, expected):
    read(declare(tmp_path, rows, kind))
    found = warnings(capsys)
    assert len(found) == bool(expected)
    assert all(part in found[0] for part in expected)


@pytest.mark.parametrize(
    ("kind", "split", "line"),
    [("classification", "train", 4), ("classification", "dev", 4), ("regression", "train", 4)],
)
def test_column_names_as_data_are_rejected(tmp_path, kind, split, line):
    labels = ("0", "1")
    rows = [f"{label},one two" for label in labels]
    lines = {"train": rows, "dev": rows} | {split: [*rows, HEADER, *rows]}
    fields = {} if kind == "regression" else {"labels": [*labels, "label"]}
    task = load_task(declare(tmp_path, lines["train"], kind, lines["dev"], **fields))
    with pytest.raises(InputError, match=rf"{split}\.csv, line {line}.*column names.*text, label"):
        read_split(task, "", split)


def test_column_names_of_a_test_split_are_no_example(tmp_path):
    path = declare(tmp_path, ["a,one", "b,two"], labels=["a", "b", "label"])
    values = json.loads((tmp_path / "own.json").read_text())
    values["files"]["test"] = "train.csv"
    (tmp_path / "own.json").write_text(json.dumps(values))
    (tmp_path / "train.csv").write_text(f"{HEADER}\n,one\n{HEADER}\n")
    with pytest.raises(InputError, match=r"line 3"):
        read_split(load_task(path), "", "test")


def test_labels_of_a_kind_without_labels_are_rejected(tmp_path):
    path = declare(tmp_path, ["0.5,one", "1,two"], "regression", labels=["0.5", "1"])
    with pytest.raises(InputError, match=r"own\.json.*`labels`.*regression.*Received: 0\.5, 1"):
        load_task(path)
    values = json.loads((tmp_path / "own.json").read_text())
    assert parse({**values, "name": "own"}, "task").labels  # a finished run's stays readable

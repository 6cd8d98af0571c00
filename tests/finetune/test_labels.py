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


def test_labels_that_differ_by_whitespace_are_rejected(tmp_path):
    path = declare(tmp_path, ["pos,one"] * 3 + ["neg,two"] * 2 + ["pos ,one"])
    with pytest.raises(InputError, match=r"train\.csv.*'pos' \(3 times\) and 'pos ' \(1 time\)"):
        read(path)


def test_labels_that_differ_by_case_are_warned_of(tmp_path, capsys):
    read(declare(tmp_path, ["pos,one"] * 3 + ["neg,two"] * 2 + ["Pos,one"]))
    (warning,) = warnings(capsys)
    assert "train.csv" in warning
    assert "'pos' (3 times) and 'Pos' (1 time)" in warning
    read(declare(tmp_path, ["pos,one"] * 3 + ["neg,two"] * 2))
    assert warnings(capsys) == []


@pytest.mark.parametrize("declared", [{}, {"labels": ["pos", "neg"]}])
def test_one_label_only_is_rejected(tmp_path, declared):
    path = declare(tmp_path, ["pos,one"] * 3, **declared)
    with pytest.raises(InputError, match=r"train\.csv.*at least two labels.* '?pos'?$"):
        read(path)


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


def test_another_second_header_is_warned_of(tmp_path, capsys):
    rows = ["a,one", "b,two"] * 10
    read(declare(tmp_path, ["Verdict,Review text", *rows]))
    (warning,) = warnings(capsys)
    assert "'Verdict'" in warning
    read(declare(tmp_path, ["a,one", *rows, "c,one"], dev=rows))  # rare, but not the first
    assert warnings(capsys) == []


@pytest.mark.parametrize(
    ("labels", "advice"),
    [
        ([f"{n / 7:.3f}" for n in range(200)], "regression"),
        ([f"sentence {n}" for n in range(200)], "column"),
    ],
)
def test_many_labels_seen_once_are_warned_of(tmp_path, capsys, labels, advice):
    read(declare(tmp_path, [f"{label},one" for label in labels]))
    (warning,) = warnings(capsys)
    assert "200 of 200 labels are seen once" in warning
    assert advice in warning


def test_labels_of_a_kind_without_labels_are_rejected(tmp_path):
    path = declare(tmp_path, ["0.5,one", "1,two"], "regression", labels=["0.5", "1"])
    with pytest.raises(InputError, match=r"own\.json.*`labels`.*regression.*Received: 0\.5, 1"):
        load_task(path)
    values = json.loads((tmp_path / "own.json").read_text())
    assert parse({**values, "name": "own"}, "task").labels  # a finished run's stays readable


def test_a_constant_regression_label_is_warned_of(tmp_path, capsys):
    read(declare(tmp_path, ["0.5,one", "0.5,two"], "regression"))
    (warning,) = warnings(capsys)
    assert "every label is 0.5" in warning

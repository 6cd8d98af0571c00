"""Rows that are tokenized; labels that are rejected or warned of."""

import pytest

from data.vocabulary import Vocabulary
from finetune.declaration import load_task, parse
from finetune.hparams import resolve_hparams
from finetune.task_data import load_task_data
from finetune.task_files import read_split
from tests.finetune.kinds_support import declared, rejects
from tests.model_support import TINY

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "One", "one", "two", "three", "##s")


@pytest.fixture
def task(tmp_path):
    lines = {"train": ["label,a,b", "yes,One two,three", "no,two twos three one,One"]}
    lines["dev"] = ["label,a,b", "no,one,three three", "yes,one two three one,two one"]
    columns = {"text_a": "a", "text_b": "b", "label": "label"}
    return load_task(declared(tmp_path, lines, columns, symmetric=True))


def load(task, **values):
    hparams = resolve_hparams({"max_seq_length": 16, **values}, task, TINY)
    return load_task_data(task, "", Vocabulary(TOKENS), hparams)


def test_both_orders_are_trained_and_only_one_is_measured(task):
    both, one = load(task), load(task, double_unordered=False)
    rows = [data.train.tokens["input_ids"].tolist() for data in (both, one)]
    count = len(rows[1])
    assert rows[0][:count] == rows[1] != rows[0][count:]
    assert sorted(rows[0][count:]) == sorted(rows[1])
    dev = [data.splits["dev"].encoded.tokens["input_ids"].tolist() for data in (both, one)]
    assert dev[0] == dev[1]
    labels = [data.train.sequences["label"].tolist() for data in (both, one)]
    assert labels[0] == labels[1] * 2


def test_data_that_are_cut_are_counted(task, capsys):
    data = load(task, max_seq_length=8)
    assert data.splits["dev"].encoded.truncated == 1
    assert "1 of 2 examples" in capsys.readouterr().err


HEADER = "label,text"


def declare(folder, rows, kind="classification", dev=None, **fields):
    """A declared task whose training file has these lines after its header."""
    lines = {"train": [HEADER, *rows], "dev": [HEADER, *(dev or rows[-2:])]}
    return declared(folder, lines, {"text_a": "text", "label": "label"}, kind=kind, **fields)


ROWS = ["pos,one"] * 3 + ["neg,two"] * 2


@pytest.mark.parametrize(
    ("rows", "fields", "named"),
    [
        ([*ROWS, "pos ,one"], {}, "'pos '"),
        (ROWS[:3], {}, "'pos'"),
        (ROWS[:3], {"labels": ["pos", "neg"]}, "'pos'"),
        ([*ROWS, ",one"], {}, "line 7"),
        ([], {"dev": ROWS}, ""),
        ([], {"dev": ROWS, "labels": ["pos", "neg"]}, ""),
    ],
)
def test_labels_that_are_rejected(tmp_path, rows, fields, named):
    path = declare(tmp_path, rows, **fields)
    with rejects("train.csv", named):
        load(load_task(path))


@pytest.mark.parametrize(
    ("rows", "kind", "expected"),
    [
        (ROWS, "classification", []),
        ([*ROWS, "Pos,one"], "classification", ["train.csv", "'Pos'"]),
    ],
)
def test_labels_that_are_warned_of(tmp_path, capsys, rows, kind, expected):
    load(load_task(declare(tmp_path, rows, kind)))
    lines = capsys.readouterr().err.splitlines()
    found = [line for line in lines if line.startswith("warning: ") and "train.csv: " in line]
    assert len(found) == bool(expected)
    assert all(part in found[0] for part in expected)


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_labels_of_the_dev_split_alone_are_all_named_or_count_as_wrong(tmp_path, kind):
    dev = ["pos,one", "new,two", "neg,one", "odd,two", "new,one"]
    path = declare(tmp_path, ROWS, kind, dev)
    with rejects("dev.csv, line 3", "'new'", "'odd'", "unseen_labels"):
        load(load_task(path))
    data = load(load_task(declare(tmp_path, ROWS, kind, dev, unseen_labels=True)))
    assert data.task.labels == ("neg", "pos", "new", "odd")
    assert parse(data.task.to_json(), "task") == data.task
    gold = [data.task.plugin.gold(data.task, x) for x in data.splits["dev"].examples[:2]]
    assert gold in (["pos", "new"], [["pos"], ["new"]])


@pytest.mark.parametrize(
    ("kind", "split"),
    [
        ("classification", "train"),
        ("classification", "dev"),
        ("classification", "test"),
        ("regression", "train"),
    ],
)
def test_column_names_as_data_are_rejected(tmp_path, kind, split):
    rows = [",one", ",two"] if split == "test" else ["0,one", "1,two"]
    labels = {} if kind == "regression" else {"labels": ["0", "1", "label"]}
    lines = {name: [HEADER, "0,one"] for name in ("train", "dev")}
    lines |= {split: [HEADER, *rows, HEADER, *rows]}
    columns = {"text_a": "text", "label": "label"}
    task = load_task(declared(tmp_path, lines, columns, kind=kind, **labels))
    with rejects(f"{split}.csv, line 4"):
        read_split(task, "", split)

"""Rows that are tokenized; labels that are rejected."""

import pytest

from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import load_task
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.task_data import load_task_data
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
        (ROWS, {"dev": ["pos,one", "new,two"]}, "'new'"),
        (ROWS[:3], {}, "'pos'"),
        (ROWS[:3], {"labels": ["pos", "neg"]}, "'pos'"),
        ([*ROWS, ",one"], {}, "line 7"),
        ([], {"dev": ROWS}, ""),
    ],
)
def test_labels_that_are_rejected(tmp_path, rows, fields, named):
    path = declare(tmp_path, rows, **fields)
    with rejects("dev.csv, line 3" if "'new'" in named else "train.csv", named):
        load(load_task(path))

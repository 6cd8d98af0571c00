"""Labels that are not what they seem: rejected or warned of, with file, names and counts."""

import pytest

from data.vocabulary import Vocabulary
from errors import InputError
from finetune.catalogue import load_task
from finetune.declaration import parse
from finetune.hparams import resolve_hparams
from finetune.task_data import load_task_data
from finetune.task_files import read_split
from tests.finetune.kinds_support import declared
from tests.finetune.test_task_data import TOKENS
from tests.model_support import TINY

HEADER = "label,text"


def declare(folder, rows, kind="classification", dev=None, **fields):
    """A declared task whose training file has these lines after its header."""
    lines = {"train": [HEADER, *rows], "dev": [HEADER, *(dev or rows[-2:])]}
    return declared(folder, lines, {"text_a": "text", "label": "label"}, kind=kind, **fields)


def read(path):
    task = load_task(path)
    hparams = resolve_hparams({"max_seq_length": 16}, task, TINY)
    return load_task_data(task, "", Vocabulary(TOKENS), hparams, cache_dir=None)


ROWS = ["pos,one"] * 3 + ["neg,two"] * 2
MANY = ["a,one", "b,two"] * 10


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
    with pytest.raises(InputError, match=f"train.csv.*{named}"):
        read(path)


@pytest.mark.parametrize(
    ("rows", "kind", "expected"),
    [
        (ROWS, "classification", []),
        ([*ROWS, "Pos,one"], "classification", ["train.csv", "'Pos'"]),
        (["Verdict,Review text", *MANY], "classification", ["'Verdict'"]),
        ([*MANY, "c,one", *MANY], "classification", []),  # rare, but not the first
        ([f"{n / 7:.3f},one" for n in range(200)], "classification", ["200", "regression"]),
        ([f"sentence {n},one" for n in range(200)], "classification", ["200"]),
        (["0.5,one", "0.5,two"], "regression", ["0.5"]),
    ],
)
def test_labels_that_are_warned_of(tmp_path, capsys, rows, kind, expected):
    read(declare(tmp_path, rows, kind))
    lines = capsys.readouterr().err.splitlines()
    found = [line for line in lines if line.startswith("warning: ") and "train.csv: " in line]
    assert len(found) == bool(expected)
    assert all(part in found[0] for part in expected)


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_labels_of_the_dev_split_alone_are_all_named_or_count_as_wrong(tmp_path, kind):
    dev = ["pos,one", "new,two", "neg,one", "odd,two", "new,one"]
    path = declare(tmp_path, ROWS, kind, dev)
    with pytest.raises(InputError) as caught:
        read(path)
    for named in ("dev.csv, line 3", "'new'", "'odd'", "unseen_labels"):
        assert named in str(caught.value)
    data = read(declare(tmp_path, ROWS, kind, dev, unseen_labels=True))
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
    with pytest.raises(InputError, match=rf"{split}\.csv, line 4"):
        read_split(task, "", split)

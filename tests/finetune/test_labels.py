"""Labels that are not what they seem: rejected or warned of, with file, names and counts."""

import json

import pytest

from data.vocabulary import Vocabulary
from errors import InputError
from finetune.catalogue import load_task
from finetune.declaration import parse
from finetune.hparams import resolve_hparams
from finetune.task_data import load_task_data
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
    return [line for line in lines if line.startswith("warning: ") and "train.csv: " in line]


ROWS = ["pos,one"] * 3 + ["neg,two"] * 2
MANY = ["a,one", "b,two"] * 10


@pytest.mark.parametrize(
    ("rows", "kind", "expected"),
    [
        (ROWS, "classification", []),
        ([*ROWS, "Pos,one"], "classification", ["train.csv", "'Pos'"]),
        ([*ROWS, "pos ,one"], "classification", ["train.csv", "'pos '"]),
        (ROWS[:3], "classification", []),
        (["0.5,one", "0.5,two"], "regression", ["0.5"]),
    ],
)
def test_labels_that_are_warned_of(tmp_path, capsys, rows, kind, expected):
    read(declare(tmp_path, rows, kind))
    found = warnings(capsys)
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
    assert data.task.labels == ("neg", "new", "odd", "pos")
    assert parse(data.task.to_json(), "task") == data.task
    kind, examples = data.task.plugin, data.splits["dev"].examples
    assert [kind.gold(data.task, example) for example in examples[:2]] in (
        ["pos", "new"], [["pos"], ["new"]]
    )  # fmt: skip


def test_labels_of_a_kind_without_labels_are_rejected(tmp_path):
    path = declare(tmp_path, ["0.5,one", "1,two"], "regression", labels=["0.5", "1"])
    with pytest.raises(InputError):
        load_task(path)

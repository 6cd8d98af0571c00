"""Rows that are reused or tokenized anew; labels that are rejected or warned of."""

import dataclasses

import numpy as np
import pytest

from data.vocabulary import Vocabulary
from errors import InputError
from finetune import task_data as cache
from finetune.declaration import load_task, parse
from finetune.encoding import Encoded
from finetune.hparams import resolve_hparams
from finetune.kinds.texts import TextKind
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


class Loader:
    """Loads with one cache and counts what had to be tokenized."""

    def __init__(self, cache_dir, monkeypatch):
        self.cache_dir, self.encoded, encode = str(cache_dir), [], TextKind.encode

        def counting(*arguments):
            self.encoded.append(1)
            return encode(*arguments)

        monkeypatch.setattr(TextKind, "encode", counting)

    def __call__(self, task, vocabulary, values=None, **options):
        """The rows' ids, and how many splits were tokenized for them."""
        before = len(self.encoded)
        hparams = resolve_hparams({"max_seq_length": 24, **(values or {})}, task, TINY)
        options = {"cache_dir": self.cache_dir, **options}
        data = load_task_data(task, "", vocabulary, hparams, **options)
        splits = [data.train, *(split.encoded for split in data.splits.values())]
        ids = [rows.tokens["input_ids"].tolist() for rows in splits]
        return [*ids, splits[0].sequences["label"].tolist()], len(self.encoded) - before


def test_what_changes_the_rows_is_never_read_from_the_cache(task, tmp_path, monkeypatch):
    load = Loader(tmp_path / "cache", monkeypatch)
    cased = Vocabulary(TOKENS, do_lower_case=False, strip_accents=False)
    first, count = load(task, cased)
    assert count == 2
    assert load(task, cased) == (first, 0)  # nothing changed: nothing is tokenized
    for changes in (
        {"vocabulary": Vocabulary(TOKENS, True, False)},  # casing
        {"vocabulary": Vocabulary((*TOKENS[:-2], "##s", "three"), False, False)},
        {"values": {"max_seq_length": 8}},
        {"values": {"double_unordered": False}},
        {"task": dataclasses.replace(task, labels=("yes", "no"))},
    ):
        given = {"task": task, "vocabulary": cased, **changes}
        rows, count = load(**given)
        assert count == 2, changes
        assert rows != first, changes
        assert (rows, 2) == load(**given, cache_dir=None), changes
    train = tmp_path / "train.csv"
    train.write_text(train.read_text().replace("three", "one"))  # of the same task
    rows, count = load(task, cased)
    assert count == 1
    assert rows[0] != first[0]
    assert rows[1] == first[1]


def test_both_orders_are_trained_and_only_one_is_measured(task, tmp_path, monkeypatch):
    load = Loader(tmp_path / "cache", monkeypatch)
    vocabulary = Vocabulary(TOKENS)
    both, _ = load(task, vocabulary)
    one, _ = load(task, vocabulary, {"double_unordered": False})
    count = len(one[0])
    assert both[0][:count] == one[0] != both[0][count:]
    assert sorted(both[0][count:]) == sorted(one[0])
    assert both[1] == one[1]
    assert both[2] == one[2] * 2  # the labels


def test_data_that_do_not_fit(task, capsys):
    hparams = resolve_hparams({"max_seq_length": 8}, task, TINY)
    data = load_task_data(task, "", Vocabulary(TOKENS), hparams, cache_dir=None)
    assert data.splits["dev"].encoded.truncated == 1
    assert "1 of 2 examples" in capsys.readouterr().err
    task = dataclasses.replace(task, metrics=("spearman",))
    with pytest.raises(InputError):
        load_task_data(task, "", Vocabulary(TOKENS), hparams, cache_dir=None)


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
    with rejects("train.csv", named):
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
    with rejects("dev.csv, line 3", "'new'", "'odd'", "unseen_labels"):
        read(path)
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
    with rejects(f"{split}.csv, line 4"):
        read_split(task, "", split)


KEY = {"examples": "ab" * 64, "labels": ["no", "yes"], "max_seq_length": 128}


def encoded_of(value=0):
    return Encoded(
        row_splits=np.array([0, 2, 5]),
        tokens={"input_ids": np.arange(5, dtype=np.int32) + value},
        sequences={"example": np.array([0, 1], np.int32), "label": np.array([0.5, 1], np.float32)},
        truncated=3,
    )


class Encode:
    """Counts its calls and gives something else each time."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return encoded_of(self.calls)


def assert_equal(a, b):
    np.testing.assert_equal(vars(a), vars(b))
    for mine, other in ((a.tokens, b.tokens), (a.sequences, b.sequences)):
        assert [column.dtype for column in mine.values()] == [x.dtype for x in other.values()]


def test_every_part_of_the_key_counts(tmp_path):
    encode = Encode()
    cache.load_or_encode(str(tmp_path), KEY, encode)
    changes = [{name: "other"} for name in KEY] + [{"another": 1}]
    for number, change in enumerate(changes, 2):
        result = cache.load_or_encode(str(tmp_path), {**KEY, **change}, encode)
        assert_equal(result, encoded_of(number))
    assert_equal(cache.load_or_encode(str(tmp_path), KEY, encode), encoded_of(1))
    assert encode.calls == 1 + len(changes)


def test_damage_anywhere_in_the_file_is_noticed(tmp_path):
    encode = Encode()
    cache.load_or_encode(str(tmp_path), KEY, encode)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    damaged = [b"", b"not a zip file", whole[: len(whole) // 2], whole[:-1]]
    for place in random.integers(0, len(whole), 150):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << random.integers(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        calls = encode.calls
        result = cache.load_or_encode(str(tmp_path), KEY, encode)
        # Some bits of a zip file, such as dates, mean nothing.
        assert_equal(result, encoded_of(encode.calls if encode.calls > calls else 1))
        path.write_bytes(whole)
    assert encode.calls > 80


def test_a_file_of_another_key_or_of_objects_is_not_trusted(tmp_path):
    encode, short = Encode(), {**KEY, "max_seq_length": 64}
    cache.load_or_encode(str(tmp_path), KEY, encode)
    (other,) = tmp_path.iterdir()
    cache.load_or_encode(str(tmp_path), short, encode)
    (path,) = set(tmp_path.iterdir()) - {other}
    good = dict(np.load(path))
    path.write_bytes(other.read_bytes())
    assert_equal(cache.load_or_encode(str(tmp_path), short, encode), encoded_of(3))
    with open(path, "wb") as file:
        np.savez(file, **{**good, "row_splits": np.array([0, 2, 5], object)})
    assert_equal(cache.load_or_encode(str(tmp_path), short, encode), encoded_of(4))


def test_what_cannot_be_written_is_no_obstacle_and_leaves_nothing(tmp_path, monkeypatch):
    file = tmp_path / "a_file"
    file.write_text("not a folder")
    for folder in (file, file / "below"):
        assert_equal(cache.load_or_encode(str(folder), KEY, Encode()), encoded_of(1))
    assert file.read_text() == "not a folder"

    def full_disk(file, **arrays):
        file.write(b"half of")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    assert_equal(cache.load_or_encode(str(tmp_path), KEY, Encode()), encoded_of(1))
    assert list(tmp_path.iterdir()) == [file]

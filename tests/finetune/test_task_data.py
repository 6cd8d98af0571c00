"""Tokenized rows are never reused for another task file, vocabulary, length or casing."""

import dataclasses

import pytest

from data.vocabulary import Vocabulary
from errors import InputError
from finetune.catalogue import load_task
from finetune.hparams import resolve_hparams
from finetune.kinds.texts import TextKind
from finetune.task_data import load_task_data
from tests.finetune.kinds_support import declared
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

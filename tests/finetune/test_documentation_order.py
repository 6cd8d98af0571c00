"""The quickstart's task: balanced, held out, without give-aways, the same every time."""

import collections
import dataclasses
import json
import os
import random

import pytest

from data.readers.base import Document
from data.shards import is_heldout
from errors import InputError
from finetune import documentation_order
from finetune.catalogue import load_task
from finetune.documentation_order import Options, build_splits, make, passages, sentences
from finetune.task_files import read_split

SHARED = "This sentence is inherited by every entry of the package and says nothing about any."
OPTIONS = Options(num_examples=60, num_dev_examples=20, heldout_fraction=0.3)


def entry(package, number, count=8):
    """An entry of `count` sentences of ten words each that no other entry has."""
    lines = [
        f"Sentence {i} of entry {number} in {package} tells topic{number} and detail{i}."
        for i in range(count)
    ]
    return Document(f"{package}/module.py:{number}", [*lines[:3], SHARED, *lines[3:]])


ENTRIES = [entry(package, n) for package in ("alpha", "beta") for n in range(30)]


@pytest.fixture(scope="module")
def splits():
    return build_splits(ENTRIES, OPTIONS)


def intact(rows):
    return [row["passage"] for row in rows if row["label"] == "intact"]


def origin(passage):
    """(package, entry) of an intact passage, from its words."""
    words = passage.split()
    return words[words.index("in") + 1], words[words.index("entry") + 1]


def test_every_passage_is_there_in_both_forms(splits):
    for rows in splits.values():
        forms = collections.defaultdict(dict)
        for row in rows:
            words = row["passage"].split()
            forms[" ".join(sorted(words))][row["label"]] = words
        assert 2 * len(forms) == len(rows)
        for by_label in forms.values():
            assert set(by_label) == {"disturbed", "intact"}
            places = [a != b for a, b in zip(by_label["intact"], by_label["disturbed"])]
            assert sum(places) == 2 * documentation_order.EXCHANGES


def test_no_sentence_is_in_two_passages(splits):
    texts = [passage for rows in splits.values() for passage in intact(rows)]
    found = collections.Counter(sentence for text in texts for sentence in sentences([text]))
    assert set(found.values()) == {1}
    assert SHARED not in found


def test_development_entries_are_those_that_pretraining_holds_out(splits):
    heldout = {
        origin(document.lines[0])
        for document in ENTRIES
        if is_heldout(document, OPTIONS.heldout_fraction, OPTIONS.heldout_seed)
    }
    assert {origin(passage) for passage in intact(splits["dev"])} <= heldout
    assert not {origin(passage) for passage in intact(splits["train"])} & heldout


def test_as_many_as_asked_for_and_mixed(splits):
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 60, "dev": 20}
    ids = [row["id"] for rows in splits.values() for row in rows]
    assert len(set(ids)) == len(ids)
    labels = "".join(row["label"][0] for row in splits["train"])
    assert labels.count("di") > 5
    assert labels.count("ii") > 5  # not in turn: intact, disturbed, intact, ...


def test_seed_decides(splits):
    assert build_splits(ENTRIES, OPTIONS) == splits
    assert build_splits(ENTRIES, dataclasses.replace(OPTIONS, seed=1)) != splits


def test_words_are_exchanged_with_different_neighbours():
    generator = random.Random(0)
    assert documentation_order.exchange_words("a a A a a a a b", generator) is None
    found = {documentation_order.exchange_words("a b c d e f", generator) for _ in range(20)}
    assert found - {None} == {"b a d c f e"}


def test_passages_end_with_sentences():
    ten = " ".join(["word"] * 9) + " end."
    assert passages([ten, ten, ten]) == [f"{ten} {ten}"]
    (long,) = passages([" ".join(["word"] * 70)])
    assert len(long.split()) == documentation_order.MAX_WORDS
    assert passages([ten]) == []
    assert sentences(["One is. Two  is", "One is.", "i.e. this"]) == [
        "One is.",
        "Two is",
        "i.e. this",
    ]


def test_too_little_text():
    with pytest.raises(InputError, match="should have documentation for train examples"):
        build_splits([Document("alpha/module.py:1", ["Too short."])], OPTIONS)
    seen = [document for document in ENTRIES if not is_heldout(document, 0.3, 0)]
    with pytest.raises(InputError, match="should have documentation for dev examples"):
        build_splits(seen, OPTIONS)


@pytest.mark.parametrize("values", [{"num_examples": 2}, {"heldout_fraction": 0.0}])
def test_options_are_checked(values):
    with pytest.raises(InputError, match=next(iter(values))):
        Options(**values)


@pytest.fixture
def packages(tmp_path):
    """A folder with two packages of functions with docstrings."""
    for name in ("alpha", "beta"):
        folder = tmp_path / "packages" / name
        os.makedirs(folder)
        source = ""
        for number in range(40):
            lines = [
                f"It is said that sentence {i} of entry {number} in {name} is of topic{number}."
                for i in range(6)
            ]
            text = "\n\n    ".join(lines)
            source += f'def f{number}():\n    """{text}\n    """\n\n\n'
        (folder / "module.py").write_text(source)
    return str(tmp_path / "packages")


def test_the_task_can_be_loaded_and_read(packages, tmp_path, capsys):
    options = Options(40, 10, heldout_fraction=0.3, packages=packages)
    folder = str(tmp_path / "task")
    counts = make(folder, options)
    assert counts == {"train": 40, "dev": 10}
    task = load_task(os.path.join(folder, "task.json"))
    assert (task.plugin.name, task.labels) == ("classification", ("disturbed", "intact"))
    for split in ("train", "dev"):
        examples = read_split(task, "", split)
        assert len(examples) == counts[split]
        assert sum(example.label for example in examples) == counts[split] // 2

    before = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)}
    capsys.readouterr()
    assert make(folder, options) == counts
    assert "is complete" in capsys.readouterr().out
    after = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)}
    assert after == before
    with pytest.raises(InputError, match=r"made with other options.*seed: 0 there, 1 now"):
        make(folder, Options(40, 10, seed=1, heldout_fraction=0.3, packages=packages))


def test_goes_on_after_an_interruption(packages, tmp_path, monkeypatch):
    options = Options(40, 10, heldout_fraction=0.3, packages=packages)
    whole, broken = str(tmp_path / "whole"), str(tmp_path / "broken")
    make(whole, options)

    def killed(path, content):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(documentation_order, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            make(broken, options)
    make(broken, options)
    for name in os.listdir(whole):
        with (
            open(os.path.join(whole, name), "rb") as a,
            open(os.path.join(broken, name), "rb") as b,
        ):
            assert a.read() == b.read()


def test_held_out_entries_are_those_of_the_pretraining_data(tmp_path):
    settings = {"settings": {"heldout_fraction": 0.05, "seed": 3}}
    (tmp_path / "manifest.json").write_text(json.dumps(settings))
    heldout = documentation_order.heldout_options(str(tmp_path))
    options = dataclasses.replace(OPTIONS, **heldout)
    assert (options.heldout_fraction, options.heldout_seed, options.seed) == (0.05, 3, 0)
    with pytest.raises(InputError, match="build_pretraining_data"):
        documentation_order.heldout_options(str(tmp_path / "absent"))

"""The quickstart's tasks: balanced, held out, without give-aways, the same every time."""

import collections
import json
import os
import random

import pytest

from data.readers.base import Document
from data.shards import is_heldout
from errors import InputError
from finetune import documentation_order, documentation_pairs, documentation_text
from finetune.documentation_text import TextTaskOptions, build_splits, make, passages, sentences
from finetune.task import load_task, read_split

PAIRS, ORDER = documentation_pairs.TASK, documentation_order.TASK
SHARED = "This sentence is inherited by every entry of the package and says nothing about any."
OPTIONS = TextTaskOptions(num_examples=60, num_dev_examples=20, heldout_fraction=0.3)


def entry(package, number, count=8):
    """An entry of `count` sentences of ten words each that no other entry has."""
    lines = [
        f"Sentence {i} of entry {number} in {package} tells topic{number} and detail{i}."
        for i in range(count)
    ]
    return Document(f"{package}/module.py:{number}", [*lines[:3], SHARED, *lines[3:]])


ENTRIES = [entry(package, n) for package in ("alpha", "beta") for n in range(30)]
ENTRIES.append(entry("lonely", 0))


@pytest.fixture(scope="module")
def splits():
    return build_splits(PAIRS, ENTRIES, OPTIONS)


def origin(passage):
    """(package, entry) of a passage, from its words."""
    words = passage.split()
    return words[words.index("in") + 1], words[words.index("entry") + 1]


def test_labels_are_right_and_balanced(splits):
    for rows in splits.values():
        labels = collections.Counter(row["label"] for row in rows)
        assert labels["same"] == labels["different"] > 0
        for row in rows:
            same = origin(row["passage_a"]) == origin(row["passage_b"])
            assert same == (row["label"] == "same")


def test_both_passages_are_of_one_package(splits):
    rows = [row for rows in splits.values() for row in rows]
    assert all(origin(row["passage_a"])[0] == origin(row["passage_b"])[0] for row in rows)
    assert {origin(row["passage_a"])[0] for row in rows} == {"alpha", "beta"}


def test_no_passage_tells_its_label(splits):
    for rows in splits.values():
        for column in ("passage_a", "passage_b"):
            by_label = {label: set() for label in documentation_pairs.LABELS}
            for row in rows:
                assert row[column] not in by_label[row["label"]]
                by_label[row["label"]].add(row[column])
            assert by_label["same"] == by_label["different"]


def test_no_sentence_is_in_two_passages(splits):
    texts = {row[c] for rows in splits.values() for row in rows for c in ("passage_a", "passage_b")}
    found = collections.Counter(s for text in texts for s in sentences([text]))
    assert set(found.values()) == {1}
    assert SHARED not in found


def test_development_entries_are_those_that_pretraining_holds_out(splits):
    heldout = {
        origin(document.lines[0])
        for document in ENTRIES
        if is_heldout(document, OPTIONS.heldout_fraction, OPTIONS.heldout_seed)
    }
    for split, rows in splits.items():
        origins = {origin(row[c]) for row in rows for c in ("passage_a", "passage_b")}
        assert (origins <= heldout) if split == "dev" else not (origins & heldout)


def test_at_most_as_many_as_asked_for_and_from_many_entries(splits):
    assert 50 <= len(splits["train"]) <= 60
    same = [row for row in splits["train"] if row["label"] == "same"]
    most = collections.Counter(origin(row["passage_a"]) for row in same).most_common(1)[0][1]
    assert most == 1  # there are more entries than pairs
    ids = [row["id"] for row in splits["train"]]
    assert len(set(ids)) == len(ids)
    labels = "".join(row["label"][0] for row in splits["train"])
    assert labels.count("ds") > 5  # mixed


def test_an_entry_with_most_of_its_packages_pairs_still_meets_others():
    entries = [entry("alpha", 0, 40), *(entry("alpha", n, 5) for n in range(1, 6))]
    rows = build_splits(
        PAIRS, [*entries, *ENTRIES], TextTaskOptions(num_examples=400, heldout_fraction=0.3)
    )
    different = [row for row in rows["train"] if row["label"] == "different"]
    assert all(origin(row["passage_a"]) != origin(row["passage_b"]) for row in different)


def test_seed_decides():
    assert build_splits(PAIRS, ENTRIES, OPTIONS) == build_splits(PAIRS, ENTRIES, OPTIONS)
    other = TextTaskOptions(num_examples=60, num_dev_examples=20, heldout_fraction=0.3, seed=1)
    assert build_splits(PAIRS, ENTRIES, OPTIONS) != build_splits(PAIRS, ENTRIES, other)


def test_word_order():
    rows = build_splits(ORDER, ENTRIES, OPTIONS)
    for split, size in (("train", 60), ("dev", 20)):
        assert len(rows[split]) == size
        forms = collections.defaultdict(dict)
        for row in rows[split]:
            forms[" ".join(sorted(row["passage"].split()))][row["label"]] = row["passage"]
        for by_label in forms.values():  # every passage in both forms
            assert set(by_label) == set(documentation_order.LABELS)
            pairs = zip(by_label["intact"].split(), by_label["disturbed"].split())
            assert sum(a != b for a, b in pairs) == 2 * documentation_order.EXCHANGES
    heldout = {origin(row["passage"]) for row in rows["dev"] if row["label"] == "intact"}
    seen = {origin(row["passage"]) for row in rows["train"] if row["label"] == "intact"}
    assert not heldout & seen
    assert rows == build_splits(ORDER, ENTRIES, OPTIONS)


def test_words_are_exchanged_with_different_neighbours():
    generator = random.Random(0)
    assert documentation_order.exchange_words("a a A a a a a b", generator) is None
    found = {documentation_order.exchange_words("a b c d e f", generator) for _ in range(20)}
    assert found - {None} == {"b a d c f e"}


def test_passages_end_with_sentences():
    ten = " ".join(["word"] * 9) + " end."
    assert passages([ten, ten, ten]) == [f"{ten} {ten}"]
    (long,) = passages([" ".join(["word"] * 70)])
    assert len(long.split()) == documentation_text.MAX_WORDS
    assert passages([ten]) == []
    assert sentences(["One is. Two  is", "One is.", "i.e. this"]) == [
        "One is.",
        "Two is",
        "i.e. this",
    ]


def test_too_little_text():
    with pytest.raises(InputError, match="should have documentation for train examples"):
        build_splits(PAIRS, ENTRIES[:1], OPTIONS)


@pytest.mark.parametrize("values", [{"num_examples": 2}, {"heldout_fraction": 0.0}])
def test_options_are_checked(values):
    with pytest.raises(InputError, match=next(iter(values))):
        TextTaskOptions(**values)


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
    options = TextTaskOptions(40, 10, heldout_fraction=0.3, packages=packages)
    folder = str(tmp_path / "task")
    counts = make(PAIRS, folder, options)
    task = load_task(os.path.join(folder, "task.json"))
    assert (task.kind, task.labels) == ("classification", ("different", "same"))
    for split in ("train", "dev"):
        examples = read_split(task, "", split)
        assert len(examples) == counts[split] > 0
        assert sum(example.label for example in examples) == counts[split] // 2

    before = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)}
    capsys.readouterr()
    assert make(PAIRS, folder, options) == counts
    assert "is complete" in capsys.readouterr().out
    after = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)}
    assert after == before
    with pytest.raises(InputError, match="made with other options.*seed: 0 there, 1 now"):
        make(
            PAIRS, folder, TextTaskOptions(40, 10, seed=1, heldout_fraction=0.3, packages=packages)
        )


def test_goes_on_after_an_interruption(packages, tmp_path, monkeypatch):
    options = TextTaskOptions(40, 10, heldout_fraction=0.3, packages=packages)
    whole, broken = str(tmp_path / "whole"), str(tmp_path / "broken")
    make(PAIRS, whole, options)

    def killed(path, content):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(documentation_text, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            make(PAIRS, broken, options)
    make(PAIRS, broken, options)
    for name in os.listdir(whole):
        with (
            open(os.path.join(whole, name), "rb") as a,
            open(os.path.join(broken, name), "rb") as b,
        ):
            assert a.read() == b.read()


def test_options_follow_the_pretraining_data(tmp_path):
    settings = {"settings": {"heldout_fraction": 0.05, "seed": 3}}
    (tmp_path / "manifest.json").write_text(json.dumps(settings))
    options = documentation_text.options_for(str(tmp_path), 100, 10, 7)
    assert (options.heldout_fraction, options.heldout_seed, options.seed) == (0.05, 3, 7)
    assert documentation_text.options_for("", 100, 10, 7).heldout_seed == 0
    with pytest.raises(InputError, match="build_pretraining_data"):
        documentation_text.options_for(str(tmp_path / "absent"), 100, 10, 7)

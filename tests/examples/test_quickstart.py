"""The quickstart: n-gram baselines counted by hand; its task, held out and without give-aways."""

import collections
import json
import random

import numpy as np
import pytest

from convbert.common.errors import InputError
from convbert.data.readers.base import Document
from convbert.data.shards import is_heldout
from convbert.examples.quickstart import word_order
from convbert.examples.quickstart.ngrams import BigramModel, baseline_accuracies, hidden_weights
from convbert.examples.quickstart.word_order import labelled, make, sentences, split_passages
from convbert.finetune.declaration import load_task
from convbert.finetune.task_files import read_split
from tests.build_support import content

PAD, UNK, CLS, SEP, MASK, A, B, C, D = range(9)
TEXT = np.array(
    [[CLS, A, B, C, SEP], [CLS, A, B, D, SEP], [CLS, A, C, D, SEP], [CLS, C, C, SEP, PAD]]
)


@pytest.fixture
def model():
    halves = [TEXT[:2], TEXT[2:]]
    batches = [(half, (half != PAD).astype(int)) for half in halves]
    return BigramModel(9, batches, [PAD, CLS, SEP, MASK])


@pytest.mark.parametrize(
    ("left", "right", "by_left", "by_both"),
    [
        # After A came B twice and C once; before D came B once of 2 and C once of 4.
        (A, D, B, B),
        (A, C, B, B),
        (C, MASK, C, C),  # nothing was seen before [MASK]; after C came C, D and [SEP], once each
        (MASK, A, C, C),  # nor after it: the most frequent token
        (MASK, D, C, B),  # before D came B and C, once each
        (D, A, C, C),  # only [SEP] follows, which is never hidden
    ],
)
def test_predictions(model, left, right, by_left, by_both):
    assert model.predict(left, right) == (C, by_left, by_both)


def test_only_hidden_tokens_are_scored(model):
    """D is chosen and shown, in the first row unchanged, in the second replaced: neither counts."""
    batch = {
        "masked_input_ids": np.array([[CLS, A, MASK, D, SEP], [CLS, MASK, C, A, SEP]]),
        "masked_lm_positions": np.array([[2, 3, 0], [1, 3, 0]]),
        "masked_lm_ids": np.array([[B, D, 0], [C, D, 0]]),
        "masked_lm_weights": np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]),
    }
    assert hidden_weights(batch, MASK).tolist() == [[1, 0, 0], [1, 0, 0]]
    scores = baseline_accuracies(model, [batch], MASK)
    # B came most often after A; the most frequent token is C; A came most often after [CLS], but
    # between [CLS] and C, both A (3 of 4, then 1 of 3) and C (1 of 4, then 1 of 4) did.
    names = ("most frequent token", "bigram, left neighbour", "bigram, both neighbours")
    assert scores == pytest.approx(dict.fromkeys(names, 0.5))


SHARED = "This sentence is inherited by every entry of the package and says nothing about any."
HELDOUT = {"heldout_fraction": 0.3, "seed": 0}
SIZES = {"train": 60, "dev": 20}


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
    found = split_passages(ENTRIES, *HELDOUT.values())
    generator = random.Random(0)
    return {split: labelled(found[split], size, generator) for split, size in SIZES.items()}


def intact(rows):
    return [row["passage"] for row in rows if row["label"] == "intact"]


def origin(passage):
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
            assert sum(places) == 2 * word_order.EXCHANGES


def test_no_sentence_is_in_two_passages_and_development_is_what_pretraining_holds_out(splits):
    texts = [passage for rows in splits.values() for passage in intact(rows)]
    found = collections.Counter(sentence for text in texts for sentence in sentences([text]))
    assert set(found.values()) == {1}
    assert SHARED not in found
    heldout = {origin(d.lines[0]) for d in ENTRIES if is_heldout(d, *HELDOUT.values())}
    assert {origin(passage) for passage in intact(splits["dev"])} <= heldout
    assert not {origin(passage) for passage in intact(splits["train"])} & heldout


def test_the_task_can_be_loaded_and_read(tmp_path, monkeypatch):
    """From two packages of functions with docstrings; the same every time."""
    for name in ("alpha", "beta"):
        functions = []
        for number in range(40):
            text = "\n\n    ".join(entry(name, number, 6).lines)
            functions.append(f'def f{number}():\n    """{text}\n    """\n')
        path = tmp_path / "packages" / name / "module.py"
        path.parent.mkdir(parents=True)
        path.write_text("\n\n".join(functions))
    (tmp_path / "manifest.json").write_text(json.dumps({"settings": HELDOUT}))
    monkeypatch.setattr(word_order, "EXAMPLES", {"train": 40, "dev": 10})
    for folder in ("task", "again"):
        make(str(tmp_path), str(tmp_path / "packages"), str(tmp_path / folder))
    assert content(tmp_path / "task") == content(tmp_path / "again")
    with pytest.raises(InputError):
        make(str(tmp_path / "absent"), str(tmp_path / "packages"), str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    task = load_task(str(tmp_path / "task" / "task.json"))
    assert (task.plugin.name, task.labels) == ("classification", ("disturbed", "intact"))
    for split, count in (("train", 40), ("dev", 10)):
        examples = read_split(task, "", split)
        assert len(examples) == len({example.id for example in examples}) == count
        assert sum(example.label for example in examples) == count // 2

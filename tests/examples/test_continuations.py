"""The task of continuations: right, held out, without give-aways, the same every time."""

import json
import random

import pytest

from data.readers.base import Document
from errors import InputError
from examples import continuations
from examples.continuations import OPTION_WORDS, OPTIONS, examples, split
from finetune.catalogue import load_task
from finetune.task_files import read_split


def sentence(document, number):
    words = " ".join(f"d{document}s{number}w{word}" for word in range(9 + (document + number) % 9))
    return f"Sentence {words}."


def paragraph(document, first):
    return " ".join(sentence(document, first + i) for i in range(4))


DOCUMENTS = [
    Document(f"{n}.txt", ["A title", paragraph(n, 0), paragraph(n, 10)]) for n in range(60)
]


@pytest.fixture(scope="module")
def splits():
    return split(DOCUMENTS, heldout_fraction=0.3, heldout_seed=0)


def origin(text):
    return text.split()[1].split("s")[0]


def test_the_right_option_goes_on_with_the_context(splits):
    for row in examples(splits["train"], 1000, random.Random(0)):
        right = "ABCD".index(row["label"])
        assert len(row["options"]) == OPTIONS
        assert [origin(o) == origin(row["context"]) for o in row["options"]].index(True) == right
        assert len({origin(option) for option in row["options"]} - {origin(row["context"])}) >= 1
        document, first = (
            origin(row["context"])[1:],
            int(row["context"].split()[1][1:].split("s")[1].split("w")[0]),
        )
        assert sentence(int(document), first + 3).startswith(row["options"][right])


def test_length_and_place_tell_nothing(splits):
    rows = list(examples(splits["train"], 1000, random.Random(0)))
    for row in rows:
        (count,) = {option.count(" ") + 1 for option in row["options"]}
        assert OPTION_WORDS[0] <= count <= OPTION_WORDS[1]
        assert len(set(row["options"])) == OPTIONS
    assert {row["label"] for row in rows} == set("ABCD")


def test_splits_share_no_document_and_repeat(splits):
    one, other = ({origin(context) for context, _, _ in splits[name]} for name in splits)
    assert one
    assert other
    assert not one & other
    again = split(DOCUMENTS, heldout_fraction=0.3, heldout_seed=0)
    rows = [list(examples(found["dev"], 50, random.Random(3))) for found in (splits, again)]
    assert rows[0] == rows[1]


def test_a_single_document_gives_no_example():
    found = split(DOCUMENTS[:1], heldout_fraction=0.0, heldout_seed=0)
    assert found["train"]
    assert not list(examples(found["train"], 10, random.Random(0)))


def test_the_folder_is_a_task(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for document in DOCUMENTS:
        (corpus / document.name).write_text("\n".join(document.lines))
    manifest = {"settings": {"heldout_fraction": 0.3, "seed": 0}}
    monkeypatch.setattr(continuations, "read_manifest", lambda folder: manifest)
    given = ("data", str(corpus), "text", str(tmp_path / "task"), 0)
    continuations.make(*given)
    with pytest.raises(InputError):  # the folder is there
        continuations.make(*given)
    task = load_task(str(tmp_path / "task" / "task.json"))
    rows = read_split(task, str(tmp_path / "task"), "dev")
    lines = (tmp_path / "task" / "dev.jsonl").read_text().splitlines()
    assert [row.label for row in rows] == [
        "ABCD".index(json.loads(line)["label"]) for line in lines
    ]

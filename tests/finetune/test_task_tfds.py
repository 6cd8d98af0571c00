"""Tasks from tensorflow-datasets, on small datasets that the library itself prepared."""

import numpy as np
import pytest

from common.errors import InputError
from finetune.declaration import load_task, parse
from finetune.kinds.span import QuestionExample
from finetune.kinds.tagging import TaggedExample
from finetune.kinds.texts import TextExample
from finetune.task_files import has_split, read_split, resolve_labels, source_of
from tests.finetune.kinds_support import rejects
from tests.tfds_support import prepare

tfds = pytest.importorskip("tensorflow_datasets")

TEXT, LABEL, MANY = tfds.features.Text(), tfds.features.ClassLabel, tfds.features.Sequence
COLA = {"sentence": TEXT, "label": LABEL(names=["unacceptable", "acceptable"]), "idx": np.int32}
STS = {"sentence1": TEXT, "sentence2": TEXT, "label": np.float32, "idx": np.int32}
ANSWERS = MANY({"text": TEXT, "answer_start": np.int32})
SQUAD = {"id": np.str_, "title": TEXT, "context": TEXT, "question": TEXT, "answers": ANSWERS}
SQUAD |= {"plausible_answers": ANSWERS, "is_impossible": np.bool_}
TAGS = {"words": MANY(TEXT), "tags": MANY(LABEL(names=["O", "B-X"]))}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tfds"))
    rows = [{"sentence": f"s {i}", "label": i % 2, "idx": i} for i in range(4)]
    hidden = [{"sentence": "?", "label": -1, "idx": 7}]
    splits = {"train": rows, "validation": rows, "test": hidden}
    prepare(folder, "glue", COLA, splits, "cola", "2.0.0")
    row = {"sentence1": "a", "sentence2": "b", "label": 2.5, "idx": 0}
    splits = {"train": [row], "test": [{**row, "label": -1.0}]}
    prepare(folder, "glue", STS, splits, "stsb", "2.0.0")
    answers = [{"text": "text", "answer_start": 2}, {"text": "A text", "answer_start": 0}]
    question = {
        "id": "q1", "title": "T", "context": "A text.", "question": "Ü?", "answers": answers,
        "plausible_answers": [], "is_impossible": False,
    }  # fmt: skip
    impossible = {**question, "id": "q2", "answers": [], "is_impossible": True}
    unlabelled = {**question, "id": "q3", "answers": []}
    splits = {"train": [question, impossible], "validation": [question, unlabelled]}
    prepare(folder, "squad", SQUAD, splits, "v2.0", "3.0.0")
    sentence = {"words": ["Jean", "sat"], "tags": ["B-X", "O"]}
    prepare(folder, "tiny_tags", TAGS, {"train": [sentence], "dev": [sentence]}, None, "2.0.0")
    return folder


def test_glue(datasets):
    task, place = load_task("cola"), f"tfds:{datasets}"
    by_id = {example.id: example for example in read_split(task, place, "dev")}
    assert by_id == {str(i): TextExample(str(i), f"s {i}", None, i % 2) for i in range(4)}
    assert read_split(task, place, "test") == [TextExample("7", "?", None, None)]
    task = load_task("sts")
    assert read_split(task, place, "train") == [TextExample("0", "a", "b", 2.5)]
    assert read_split(task, place, "test") == [TextExample("0", "a", "b", None)]
    assert [has_split(task, place, split) for split in ("dev", "test")] == [False, True]


def test_the_folder_of_the_environment(datasets, monkeypatch):
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", datasets)
    assert len(read_split(load_task("cola"), "tfds", "train")) == 4
    path = source_of(load_task("cola"), "tfds", "dev").path
    assert path == f"tfds:{datasets}/glue/cola/2.0.0@validation"


def test_squad(datasets):
    examples = read_split(load_task("squad"), f"tfds:{datasets}", "train")
    assert sorted(examples, key=lambda example: example.id) == [
        QuestionExample("q1", "Ü?", "A text.", ("text", "A text"), 2, False),
        QuestionExample("q2", "Ü?", "A text.", (), None, True),
    ]
    with pytest.raises(InputError):
        read_split(load_task("squad"), f"tfds:{datasets}", "dev")


def own_task(**fields):
    declaration = {
        "name": "own",
        "kind": "tagging",
        "format": "tfds",
        "tfds": "tiny_tags",
        "files": {"train": "train", "dev": "dev[:100%]", "dev_again": "tiny_tags:2.0.0@dev"},
        "columns": {"words": "words", "tags": "tags"},
        "labels": ["O", "B-X"],
    }
    return parse(declaration | fields, "task")


def test_own_task(datasets):
    task = resolve_labels(own_task(labels=[]), datasets)
    assert task.labels == ("B-X", "O")
    for split in task.splits:
        assert has_split(task, datasets, split)
        assert read_split(task, datasets, split) == [TaggedExample("0", ("Jean", "sat"), (0, 1))]
    assert read_split(task, f"tfds:{datasets}", "train")[0].tags == (0, 1)


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (own_task(tfds="tiny_tagz"), "'tiny_tagz'"),
        (own_task(files={"train": "test", "dev": "dev"}), "'test'"),
        (own_task(columns={"words": "words", "tags": "ner"}), "'ner' for `tags`"),
        (own_task(labels=["O", "B-Y"]), "'1'"),
        (own_task(format="jsonl"), "own"),
        (load_task("pos"), "pos"),
    ],
)
def test_mistakes(datasets, task, named):
    with rejects(named):
        read_split(task, f"tfds:{datasets}", "train")

"""GLUE and SQuAD from tensorflow-datasets, on small datasets that the library itself prepared."""

import dataclasses

import numpy as np
import pytest

from convbert.common.errors import InputError
from convbert.finetune.declaration import load_task
from convbert.finetune.kinds.span import QuestionExample
from convbert.finetune.kinds.texts import TextExample
from convbert.finetune.task_files import has_split, read_split
from tests.finetune.kinds_support import rejects

tfds = pytest.importorskip("tensorflow_datasets")

TEXT, LABEL, MANY = tfds.features.Text(), tfds.features.ClassLabel, tfds.features.Sequence
COLA = {"sentence": TEXT, "label": LABEL(names=["unacceptable", "acceptable"]), "idx": np.int32}
STS = {"sentence1": TEXT, "sentence2": TEXT, "label": np.float32, "idx": np.int32}
ANSWERS = MANY({"text": TEXT, "answer_start": np.int32})
SQUAD = {"id": np.str_, "title": TEXT, "context": TEXT, "question": TEXT, "answers": ANSWERS}
SQUAD |= {"plausible_answers": ANSWERS, "is_impossible": np.bool_}


def prepare(folder, name, features, splits, config, version):
    """Prepares a dataset of this name in `folder`; `splits` has the rows of each."""
    with tfds.core.registered.skip_registration():

        class Small(tfds.core.GeneratorBasedBuilder):
            """Rows that the test gives."""

            # As if defined in a script: for classes of a package, tfds 4.9.10 needs
            # importlib_resources, which it does not declare.
            __module__ = "__main__"
            VERSION = tfds.core.Version(version)
            BUILDER_CONFIGS = (tfds.core.BuilderConfig(name=config),)

            def _info(self):
                own = tfds.features.FeaturesDict(features)
                return tfds.core.DatasetInfo(builder=self, features=own)

            def _split_generators(self, dl_manager):
                return {split: enumerate(rows) for split, rows in splits.items()}

            def _generate_examples(self):
                raise NotImplementedError

    Small.name = name
    Small(data_dir=folder, config=config).download_and_prepare()


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


def test_squad(datasets):
    examples = read_split(load_task("squad"), f"tfds:{datasets}", "train")
    expected = [("q1", "Ü?", "A text.", ("text", "A text"), 2, False)]
    expected += [("q2", "Ü?", "A text.", (), None, True)]
    found = sorted(examples, key=lambda example: example.id)
    assert found == [QuestionExample(*row) for row in expected]
    with pytest.raises(InputError):
        read_split(load_task("squad"), f"tfds:{datasets}", "dev")


def test_only_built_in_tasks_have_a_dataset(datasets):
    """Of others, the package would import a class that the folder names."""
    own = dataclasses.replace(load_task("cola"), tfds="own:1.0.0")
    for task in (load_task("pos"), own):
        with rejects(task.name):
            read_split(task, f"tfds:{datasets}", "train")

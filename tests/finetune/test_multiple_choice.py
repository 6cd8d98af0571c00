"""Multiple choice: RACE's files, the head, batches of whole examples."""

import dataclasses
import json
import os
import types

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.finetune.declaration import TASKS, load_task, parse
from convbert.finetune.hparams import FinetuningRunSettings, resolve_hparams
from convbert.finetune.kinds.multiple_choice import ChoiceExample
from convbert.finetune.plan import Trial
from convbert.finetune.run import _check_trials
from convbert.finetune.task_data import TaskData
from convbert.finetune.task_files import has_split, read_split
from convbert.model import EncoderOutput
from convbert.model.heads.task import MultipleChoiceHead
from tests.finetune.kinds_support import rejects, task_of
from tests.model_support import TINY

ARTICLE = {
    "article": "Ada met Mary.\nThey spoke.",
    "questions": ["Who met Mary?", "_ spoke."],
    "options": [["Ada", "Bob", "Eve", "Tom"], ["He", "She", "They", "It"]],
    "answers": ["A", "C"],
    "id": "high7.txt",
}
TASK = task_of("multiple_choice", "accuracy", labels=("0", "1", "2"), test=("test",))


def write_race(folder, split="train", levels=("middle", "high"), **changes):
    for level in levels:
        path = folder / split / level
        path.mkdir(parents=True)
        for number in (10, 9):
            article = {**ARTICLE, "id": f"{level}{number}.txt", **changes}
            (path / f"{number}.txt").write_text(json.dumps(article))


def test_race_is_read_by_level_and_number(tmp_path):
    write_race(tmp_path)
    examples = read_split(TASKS["race"], str(tmp_path), "train")
    assert [x.id for x in examples] == [
        f"{level}{number}.txt-{i}"
        for level in ("high", "middle") for number in (9, 10) for i in (0, 1)
    ]  # fmt: skip
    first = ChoiceExample("high9.txt-0", ARTICLE["article"], "Who met Mary?",
                          ("Ada", "Bob", "Eve", "Tom"), 0)  # fmt: skip
    assert examples[0] == first
    middle = read_split(load_task("race-middle"), str(tmp_path), "train")
    assert middle == examples[4:]
    # The folder of one level is not that of another split.
    assert not has_split(TASKS["race_middle"], str(tmp_path / "train"), "dev")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"answers": ["A"]}, "answers"),
        ({"answers": ["A", "E"]}, "questions[1]"),
        ({"options": [[*"abcde"], ["a", "b"]]}, "questions[0]"),
        ({"article": " "}, "`context`"),
    ],
)
def test_wrong_files_of_race_are_named(tmp_path, changes, named):
    write_race(tmp_path, levels=("high",), **changes)
    with rejects(f"high{os.sep}9.txt", named):
        read_split(TASKS["race_high"], str(tmp_path), "train")


def test_a_missing_answer_is_rejected_but_in_test_splits(tmp_path):
    unlabelled = {name: value for name, value in ARTICLE.items() if name != "answers"}
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "1.txt").write_text(json.dumps(unlabelled))
    values = {"name": "own", "kind": "multiple_choice", "format": "race", "labels": [*"ABCD"]}
    values["files"] = {"train": "train", "dev": "train", "test": "test"}
    task = parse(values, "own.json")
    assert [x.label for x in read_split(task, str(tmp_path), "test")] == [None, None]
    with pytest.raises(InputError):
        read_split(task, str(tmp_path), "train")
    with pytest.raises(InputError):
        parse({**values, "columns": {"context": "article"}}, "own.json")


HPARAMS = resolve_hparams({"max_seq_length": 32}, TASK, TINY)


def test_the_loss_is_of_the_options_that_an_example_has():
    head = MultipleChoiceHead(3)
    pooled = tf.Variable(np.random.default_rng(0).normal(size=[6, 8]), dtype=tf.float32)
    values = {"present": [1.0, 1, 0, 1, 1, 1], "label": [1, 1, 1, 2, 2, 2]}
    values["weight"] = [1.0, 1, 1, 0, 0, 0]
    batch = {name: tf.constant(value) for name, value in values.items()}
    scores = head.predict(EncoderOutput(None, pooled), batch)["score"].numpy()
    with tf.GradientTape() as tape:
        losses = head.loss(EncoderOutput(None, pooled), batch, training=False)
    parts = (scores[:2], scores[3:])  # whose last one is the right one
    expected = [np.log(np.exp(part).sum()) - part[-1] for part in parts]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    gradient = tape.gradient(losses, pooled).numpy()
    assert (gradient[2] == 0).all()
    assert (np.abs(gradient[[0, 1, 3, 4, 5]]).max(axis=1) > 0).all()
    assert head.loss_weights(batch).numpy().tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("train", "run", "devices", "named"),
    [
        (32, {}, 1, "train_batch_size"),
        (30, {}, 1, "eval_batch_size"),
        (33, {"eval_batch_size": 33}, 2, "train_batch_size"),
        (36, {"eval_batch_size": 36, "micro_batch_size": 4}, 1, "micro_batch_size"),
    ],
)
def test_batches_that_would_divide_an_example_are_rejected(train, run, devices, named):
    hparams = dataclasses.replace(HPARAMS, train_batch_size=train)
    trial = Trial("", 0, {}, hparams, TaskData(TASK, None, {}, {}))
    with rejects(f"`{named}`"):
        strategy = types.SimpleNamespace(num_replicas_in_sync=devices)
        _check_trials([trial], FinetuningRunSettings(**run), strategy)

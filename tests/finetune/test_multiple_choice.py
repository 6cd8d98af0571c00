"""Multiple choice: RACE's files, own tables, groups of sequences, the head, answers."""

import dataclasses
import json
import os
import types

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import TASKS, load_task, parse
from convbert.finetune.hparams import FinetuningRunSettings, resolve_hparams
from convbert.finetune.kinds.multiple_choice import ChoiceExample
from convbert.finetune.learner import Predictor
from convbert.finetune.objective import FineTuning
from convbert.finetune.plan import Trial
from convbert.finetune.run import _check_trials
from convbert.finetune.task_data import Split, TaskData
from convbert.finetune.task_files import has_split, read_split
from convbert.model import EncoderOutput, build_encoder
from convbert.model.heads.task import MultipleChoiceHead
from convbert.training.distribution import create_strategy
from tests.finetune.kinds_support import predicted, rejects, task_of
from tests.model_support import TINY, randomize

ARTICLE = {
    "article": "Ada met Mary.\nThey spoke.",
    "questions": ["Who met Mary?", "_ spoke."],
    "options": [["Ada", "Bob", "Eve", "Tom"], ["He", "She", "They", "It"]],
    "answers": ["A", "C"],
    "id": "high7.txt",
}
WORDS = [f"w{i}" for i in range(20)]
VOCABULARY = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "right", "wrong", *WORDS))
TASK = task_of("multiple_choice", "accuracy", labels=("0", "1", "2"), test=("test",))


def write_race(folder, split="train", levels=("middle", "high"), **changes):
    for level in levels:
        path = folder / split / level
        path.mkdir(parents=True)
        for number in (10, 9):
            article = {**ARTICLE, "id": f"{level}{number}.txt", **changes}
            (path / f"{number}.txt").write_text(json.dumps(article))


def examples_of(counts, draw=None):
    """One example for each number of options; only the right option has a telling word."""
    draw = draw or np.random.default_rng(0)

    def text(n, *more):
        return " ".join([*draw.choice(WORDS, n), *more])

    found = []
    for number, count in enumerate(counts):
        label = int(draw.integers(count))
        options = [text(draw.integers(1, 6), "wrong") for _ in range(count)]
        options[label] = text(draw.integers(1, 6), "right")
        context = text(draw.integers(3, 30))
        found.append(ChoiceExample(str(number), context, text(3), tuple(options), label))
    return found


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


def encoded_of(examples):
    return TASK.plugin.encode(TASK, examples, VOCABULARY, HPARAMS)


def test_the_loss_is_of_the_options_that_an_example_has():
    head = MultipleChoiceHead(3)
    pooled = tf.Variable(np.random.default_rng(0).normal(size=[6, 8]), dtype=tf.float32)
    batch = {
        "present": tf.constant([1.0, 1, 0, 1, 1, 1]),
        "label": tf.constant([1, 1, 1, 2, 2, 2]),
        "weight": tf.constant([1.0, 1, 1, 0, 0, 0]),
    }
    scores = head.predict(EncoderOutput(None, pooled), batch)["score"].numpy()
    with tf.GradientTape() as tape:
        losses = head.loss(EncoderOutput(None, pooled), batch, training=False)
    expected = [
        np.log(np.exp(scores[:2]).sum()) - scores[1],
        np.log(np.exp(scores[3:]).sum()) - scores[5],
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    gradient = tape.gradient(losses, pooled).numpy()
    assert (gradient[2] == 0).all()
    assert (np.abs(gradient[[0, 1, 3, 4, 5]]).max(axis=1) > 0).all()
    assert head.loss_weights(batch).numpy().tolist() == [1.0, 0.0]


def test_padding_and_devices_change_no_answer():
    encoder = build_encoder(TINY.replace(vocab_size=VOCABULARY.size, num_hidden_layers=1))
    objective = FineTuning(encoder, TASK.plugin.head(TASK, encoder.config, HPARAMS))
    randomize(encoder, scale=0.3)
    randomize(objective.head)
    examples, found = examples_of([3, 2, 2, 3, 3] * 5, np.random.default_rng(2)), []
    encoded = encoded_of(examples)
    for buckets, name in ((True, "one_device"), ((16,), "mirrored:2")):
        options = {"hparams": dataclasses.replace(HPARAMS, length_buckets=buckets)}
        options |= {"batch_size": 6, "strategy": create_strategy(name)}
        found.append(Predictor(objective, TASK, **options)(Split(examples, encoded)))
    np.testing.assert_allclose(found[0]["score"], found[1]["score"], rtol=0, atol=1e-5)
    answers = TASK.plugin.answers(TASK, Split(examples, encoded), found[0], HPARAMS)
    assert all(answer < len(x.options) for x, answer in zip(examples, answers))
    row = TASK.plugin.row(predicted(TASK, examples, answers, found[0]), 0)
    assert row["option"] == examples[0].options[answers[0]]
    assert max(row["probabilities"], key=row["probabilities"].get) == row["prediction"]
    assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)


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

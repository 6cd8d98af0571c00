"""Multiple choice: RACE's files, own tables, groups of sequences, the head, answers and scores."""

import dataclasses
import json
import os
import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import InputError
from data.vocabulary import Vocabulary
from finetune.batches import TrainingBatches
from finetune.declaration import TASKS, load_task, parse
from finetune.hparams import FinetuningRunSettings, resolve_hparams
from finetune.kinds import multiple_choice
from finetune.kinds.multiple_choice import ChoiceExample
from finetune.kinds.predicted import baseline
from finetune.learner import Predictor
from finetune.objective import FineTuning
from finetune.plan import Trial
from finetune.run import _check_trials
from finetune.task_data import Split, TaskData
from finetune.task_files import has_split, read_split, resolve_labels
from model import EncoderOutput, build_encoder
from model.heads.task import MultipleChoiceHead
from tests.finetune.kinds_support import declared, predicted, rejects, task_of
from tests.model_support import TINY, randomize
from training import workers
from training.distribution import create_strategy
from training.loop import Trainer
from training.optimizer import create_optimizer

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
    """An example of each number of options, of which the right one has a word of its own."""
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
    assert {x.level for x in examples} == {"high", "middle"}
    first = ChoiceExample("high9.txt-0", ARTICLE["article"], "Who met Mary?",
                          ("Ada", "Bob", "Eve", "Tom"), 0, "high")  # fmt: skip
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
        ({"answers": ["C", "A"], "options": [["a", "b"], ["a", "b"]]}, "questions[0]"),
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
    assert parse(task.to_json(), "again") == task
    assert [x.label for x in read_split(task, str(tmp_path), "test")] == [None, None]
    with pytest.raises(InputError):
        read_split(task, str(tmp_path), "train")
    with pytest.raises(InputError):
        parse({**values, "columns": {"context": "article"}}, "own.json")


def test_options_in_columns_of_a_table_or_in_a_list(tmp_path):
    columns = {"context": "c", "question": "q", "options": ["o1", "o2", "o3"], "label": "y"}
    lines = dict.fromkeys(("train", "dev"), ("c,q,o1,o2,o3,y", '"a, b",,x,y,,1', "c,d?,x,y,z,2"))
    task = load_task(declared(tmp_path, lines, columns, kind="multiple_choice"))
    assert parse(task.to_json(), "again") == task
    task = resolve_labels(task, str(tmp_path))
    assert task.labels == ("0", "1", "2")
    expected = [
        ChoiceExample("0", "a, b", "", ("x", "y"), 1),
        ChoiceExample("1", "c", "d?", ("x", "y", "z"), 2),
    ]
    assert read_split(task, str(tmp_path), "train") == expected
    (tmp_path / "train.csv").write_text("c,q,o1,o2,o3,y\na,b,x,,z,0\n")
    with pytest.raises(InputError):
        read_split(task, str(tmp_path), "train")
    (tmp_path / "train.jsonl").write_text('{"story": "a", "ends": ["x", "y"], "right": 1}')
    assert read_split(TASK, str(tmp_path), "train") == [ChoiceExample("0", "a", "", ("x", "y"), 1)]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["A", "C"], ("A", "B", "C")), (["b", "a"], ("a", "b", "c")), ([0, "2"], ("0", "1", "2"))],
)
def test_labels_are_collected_with_the_places_that_are_never_right(tmp_path, labels, expected):
    rows = [{"story": "a", "ends": ["x", "y", "z"], "right": label} for label in labels]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = resolve_labels(dataclasses.replace(TASK, labels=()), str(tmp_path))
    assert task.labels == expected
    assert len(read_split(task, str(tmp_path), "train")) == 2


HPARAMS = resolve_hparams({"max_seq_length": 32}, TASK, TINY)


def encoded_of(examples):
    return TASK.plugin.encode(TASK, examples, VOCABULARY, HPARAMS)


def test_a_workers_share_is_of_whole_examples(monkeypatch):
    encoded = encoded_of(examples_of([2, 3] * 6))
    options = {"max_seq_length": 32, "group_size": 3}
    (whole,) = TrainingBatches(encoded, 12, 0, **options)().take(1)
    monkeypatch.setattr(workers, "index", 1)
    monkeypatch.setattr(workers, "count", 2)
    (share,) = TrainingBatches(encoded, 12, 0, **options)().take(1)
    np.testing.assert_array_equal(share["example"], whole["example"][6:])
    assert [len({*group}) for group in share["example"].numpy().reshape(2, 3)] == [1, 1]


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


def test_it_is_learned_and_padding_and_devices_change_no_answer():
    """In micro-batches of one example."""
    encoded = encoded_of(examples_of([2, 3, 3, 2] * 20, np.random.default_rng(1)))
    encoder = build_encoder(TINY.replace(vocab_size=VOCABULARY.size, num_hidden_layers=1))
    objective = FineTuning(encoder, TASK.plugin.head(TASK, encoder.config, HPARAMS))
    randomize(encoder, scale=0.3)
    randomize(objective.head)
    optimizer = create_optimizer("adam", 5e-3, 0.0, objective.trainable_variables)
    batches = TrainingBatches(encoded, 12, 0, max_seq_length=32, group_size=3)
    strategy = create_strategy("one_device")
    trainer = Trainer(objective, optimizer, batches, seed=0, strategy=strategy, micro_batches=4)
    trainer.train(tf.constant(150))
    trainer.close()

    examples, found = examples_of([3, 2, 2, 3, 3] * 5, np.random.default_rng(2)), []
    encoded = encoded_of(examples)
    for buckets, name in ((True, "one_device"), ((16,), "mirrored:2")):
        options = {"hparams": dataclasses.replace(HPARAMS, length_buckets=buckets)}
        options |= {"batch_size": 6, "strategy": create_strategy(name)}
        found.append(Predictor(objective, TASK, **options)(Split(examples, encoded)))
    np.testing.assert_allclose(found[0]["score"], found[1]["score"], rtol=0, atol=1e-5)
    answers = TASK.plugin.answers(TASK, Split(examples, encoded), found[0], HPARAMS)
    assert all(answer < len(x.options) for x, answer in zip(examples, answers))
    assert np.mean([x.label == a for x, a in zip(examples, answers)]) > 0.8  # by chance 0.4
    rows = predicted(TASK, examples, answers, found[0])
    for number, (example, answer) in enumerate(zip(examples, answers)):
        row = TASK.plugin.row(rows, number)
        assert row["option"] == example.options[answer]
        shares = row["probabilities"]
        assert list(shares) == list(TASK.labels[: len(example.options)])
        assert max(shares, key=shares.get) == row["prediction"]
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)


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


def test_scores_by_level_and_what_collapses():
    rows = [("middle", 0), ("middle", 1), ("high", 1), ("", 2)]
    found = [ChoiceExample(str(i), "a", "", ("x", "y", "z"), label, level)
             for i, (level, label) in enumerate(rows)]  # fmt: skip
    gold = [x.label for x in found]
    scores = TASK.plugin.score(predicted(TASK, found, gold))
    assert scores == dict.fromkeys(
        ("accuracy", "accuracy_middle", "accuracy_high", "accuracy_other"), 100.0
    )
    same = predicted(TASK, found, [1] * 4)
    assert TASK.plugin.score(same) == {
        "accuracy": 50.0, "accuracy_middle": 50.0, "accuracy_high": 100.0, "accuracy_other": 0.0,
    }  # fmt: skip
    assert "'1'" in TASK.plugin.collapsed(same)
    assert TASK.plugin.collapsed(predicted(TASK, found, gold)) is None
    assert list(TASK.plugin.score(predicted(TASK, found[:2], gold[:2]))) == ["accuracy"]


def test_the_best_baseline_counts_and_the_others_are_named():
    context = "Ada met Mary in Paris . Long after that Bob met Tom in London ."
    options = [("Paris", "London"), ("Rome", "Paris")]
    questions = ("Where did Bob meet Tom ?", "Where did Ada meet Mary ?")
    found = [ChoiceExample(q, context, q, o, 1) for q, o in zip(questions, options)]
    assert multiple_choice.share_of_words(context, "", ("Ada Rome", "Mary")) == [0.5, 1.0]
    scores = multiple_choice.sliding_window(context, questions[0], options[0])
    assert scores[1] > scores[0]  # the window with Bob and Tom does not reach Paris
    found.append(ChoiceExample("3", context, "", ("Rome", "Tom"), 0))
    best = baseline(predicted(TASK, found, [1, 1, 0]))
    names = [best["name"], *(other["name"] for other in best["others"])]
    assert sorted(names) == ["most frequent label", "share of words", "sliding window"]
    assert best["scores"]["accuracy"] == pytest.approx(200 / 3)
    assert all(other["scores"]["accuracy"] <= 67 for other in best["others"])
    empty = ChoiceExample("4", ".", "?", ("...", "!"), 0)
    assert multiple_choice.best_options("sliding window", [empty]) == [0]

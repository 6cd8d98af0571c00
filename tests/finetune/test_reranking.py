"""Reranking and multiple choice: files, losses, metrics, what is learned, and what models give."""

import json
import os
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn.metrics import ndcg_score

import convbert
from convbert.common.errors import InputError
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import TASKS, load_task, parse
from convbert.finetune.hparams import FinetuningRunSettings, resolve_hparams
from convbert.finetune.kinds.base import Predicted
from convbert.finetune.kinds.multiple_choice import ChoiceExample
from convbert.finetune.kinds.reranking import RerankingExample
from convbert.finetune.plan import Trial, make_plan
from convbert.finetune.run import _check_trials
from convbert.finetune.task_data import TaskData, load_task_data
from convbert.finetune.task_files import find_source, read_split
from convbert.model import EncoderOutput
from convbert.model.heads.task import MultipleChoiceHead, RerankingHead
from convbert.serving.records import records
from tests.finetune.kinds_support import BAD, GOOD, HPARAMS, OTHER, declared, rejects, task_of
from tests.model_support import TINY

RANDOM = np.random.default_rng(0)
VALUES = {
    "name": "own",
    "kind": "reranking",
    "files": {"train": "train.jsonl", "dev": "train.jsonl", "test": "test.jsonl"},
    "columns": {"query": "asked", "candidates": "texts", "relevance": "grades"},
}
TASK = parse(VALUES, "own.json")


def queries(count, seed=0):
    """Queries with five candidates; a good word is relevant, a bad one is not."""
    draw, rows = np.random.default_rng(seed), []
    for _ in range(count):
        grades = (np.arange(5) == draw.integers(5)).astype(float).tolist()
        texts = [
            " ".join(draw.permutation([*draw.choice(OTHER, 3), draw.choice(GOOD if y else BAD)]))
            for y in grades
        ]
        rows.append((" ".join(draw.choice(OTHER, 3)), texts, grades))
    return pd.DataFrame(rows, columns=["asked", "texts", "grades"])


def read(tmp_path, split="train", **row):
    row = {"asked": "a", "texts": ["b", "c"], "grades": [1, 0], **row}
    (tmp_path / f"{split}.jsonl").write_text(json.dumps(row))
    return read_split(TASK, str(tmp_path), split)


def test_examples(tmp_path):
    assert read(tmp_path) == [RerankingExample("0", "a", ("b", "c"), (1.0, 0.0))]
    assert read(tmp_path, "test", grades=None)[0].relevance is None


WRONG = [({"texts": texts}, "`candidates`") for texts in ([], ["b", " "], "b")]
WRONG += [({"grades": grades}, "`relevance`") for grades in ([1], [1, -1], None)]
WRONG += [({"asked": ""}, "`query`"), ({"grades": ["yes", "no"]}, "`relevance")]


@pytest.mark.parametrize(("row", "named"), WRONG)
def test_wrong_rows_are_named(tmp_path, row, named):
    with rejects("train.jsonl", named):
        read(tmp_path, **row)


def test_what_cannot_train_is_rejected():
    hparams = resolve_hparams({}, TASK, TINY)
    for texts, grades in ((("b",), (1.0,)), (("b", "c"), (1.0, 1.0)), (("b", "c"), (0.0, 0.0))):
        with rejects("relevance"):
            examples = [RerankingExample("0", "a", texts, grades)]
            TASK.plugin.training_examples(TASK, examples, hparams)
    examples = [RerankingExample("0", "a", texts, grades) for grades in ((0.0, 0.0), (1.0, 0.0))]
    assert "1 of 2" in TASK.plugin.note(examples)


@pytest.mark.parametrize(
    ("grades", "kept"),
    [
        ((0, 0, 1, 0, 2), (4, 2, 0, 1)),
        ((1, 2, 1, 1, 0), (1, 0, 2, 4)),  # all negatives, however few
        ((1, 1, 1, 0, 0, 0), (0, 1, 3, 4)),  # half of them
        ((1, 0), (0, 1)),
    ],
)
def test_what_is_trained_of_many_candidates(grades, kept):
    hparams = resolve_hparams({"max_candidates": 4}, TASK, TINY)
    texts = tuple("bcdefg"[: len(grades)])
    examples = [RerankingExample("0", "a", texts, grades), RerankingExample("1", "a", texts, (0,))]
    (found,) = TASK.plugin.training_examples(TASK, examples, hparams)
    assert found.candidates == tuple(texts[i] for i in kept)
    assert found.relevance == tuple(grades[i] for i in kept)


def test_a_sweep_reads_each_points_candidates(model_dir, tmp_path, capsys):
    """And of the training split only as many queries as are asked for; one has no answer."""
    rows = [json.dumps(row) for row in queries(8).to_dict("records")]
    rows.append(json.dumps({**json.loads(rows[0]), "grades": [0.0] * 5}))
    path = declared(tmp_path, {"train": rows, "dev": rows}, VALUES["columns"], "jsonl", "reranking")
    points = {"max_candidates": [2, 4]}
    values = {"max_train_examples": 6}
    folders = {"model_dir": str(model_dir), "data_dir": "", "output_dir": str(tmp_path / "runs")}
    plan = make_plan([load_task(path)], {}, values, {}, grid=points, **folders)
    words = Vocabulary.load(str(model_dir))
    (task,) = plan.tasks
    data = [load_task_data(task, "", words, of, test=False) for _, of in plan.points(task, TINY)]
    assert [len(each.train) for each in data] == [12, 24]
    assert "max_candidates" in TASK.plugin.shaping
    assert capsys.readouterr().err.count("train: 1 of 9") == 2


WEIGHT = np.array([1, 1, 1, 1, 1, 1, 0, 0], np.float32)
RELEVANCE = np.array([2, 1, 0, 1, 0, 3, 0, 3], np.float32)  # the last two fill up the batch


@pytest.mark.parametrize("listwise", [True, False])
def test_the_loss_is_its_definition(listwise):
    head = RerankingHead(listwise=listwise)
    pooled = tf.constant(RANDOM.normal(size=[8, 4]), tf.float32)
    batch = {"relevance": tf.constant(RELEVANCE), "weight": tf.constant(WEIGHT)}
    batch["candidate"] = tf.constant([0, 1, 2, 0, 0, 1, 1, 1])
    scores = head.predict(EncoderOutput(None, pooled), batch)["score"].numpy()
    losses = head.loss(EncoderOutput(None, pooled), batch, training=False)
    weights, expected = head.loss_weights(batch), []
    if listwise:
        for y, s in zip(np.split(RELEVANCE[:6], [3, 4]), np.split(scores[:6], [3, 4])):
            expected.append(-(y / y.sum()) @ np.log(np.exp(s) / np.exp(s).sum()))
    else:
        shares = 1 / (1 + np.exp(-scores[:6]))
        expected = -np.log(np.where(RELEVANCE[:6] > 0, shares, 1 - shares))
    np.testing.assert_allclose(tf.reduce_sum(losses * weights), np.sum(expected), rtol=1e-5)
    np.testing.assert_allclose(tf.reduce_sum(weights), len(expected), rtol=1e-6)
    # A query that is there twice is two queries.
    twice = {name: tf.concat([column, column], 0) for name, column in batch.items()}
    output = EncoderOutput(None, tf.concat([pooled, pooled], 0))
    again = head.loss(output, twice, training=False) * head.loss_weights(twice)
    np.testing.assert_allclose(tf.reduce_sum(again), 2 * np.sum(expected), rtol=1e-5)


def test_metrics():
    draw = np.random.default_rng(1)
    gold = [tuple(draw.integers(0, 3, n).astype(float)) for n in (2, 12, 30)] + [(0.0, 0.0)]
    answers = [tuple(draw.normal(size=len(y))) for y in gold]
    examples = [RerankingExample(str(i), "a", ("b",) * len(y), y) for i, y in enumerate(gold)]
    found = TASK.plugin.score(Predicted(TASK, examples, answers))
    pairs = [*zip(gold, answers)][:3]
    expected = [ndcg_score([y], [s], k=10) for y, s in pairs]
    assert found["ndcg@10"] == pytest.approx(100 * np.mean(expected))
    ranks = [1 + min(sorted(s, reverse=True).index(x) for x, of in zip(s, y) if of)
             for y, s in pairs]  # fmt: skip
    assert found["mrr@10"] == pytest.approx(100 * np.mean([1 / r if r <= 10 else 0 for r in ranks]))
    # Of equal scores, the relevant candidate is the last.
    constant = [(0.0,) * len(y) for y in gold]
    assert TASK.plugin.score(Predicted(TASK, examples, constant))["ndcg@10"] < found["ndcg@10"]
    assert TASK.plugin.collapsed(Predicted(TASK, examples, constant))
    assert TASK.plugin.score(Predicted(TASK, examples[3:], answers[3:]))["mrr@10"] is None
    single = [RerankingExample("0", "a", ("b",), (1.0,))]
    assert TASK.plugin.collapsed(Predicted(TASK, single, [(0.5,)])) is None


@pytest.mark.slow  # needs twenty seconds
def test_a_model_learns_to_rerank(model_dir, tmp_path):
    columns = VALUES["columns"]
    hparams = {**HPARAMS, "max_candidates": 4, "num_train_epochs": 4}
    tuned = convbert.fine_tune(model_dir, queries(120), queries(30, 1), output_dir=tmp_path,
                               columns=columns, hparams=hparams)  # fmt: skip
    model, held_out = convbert.load(tuned.folder), queries(30, 1)
    assert model.kind == "reranking"
    assert tuned.scores["dev"]["mrr@10"] > 80  # of a random order: 46
    found = model.evaluate(held_out)
    assert found.scores == pytest.approx(tuned.scores["dev"], abs=1e-3)
    cut = [texts[: 2 + number % 3] for number, texts in enumerate(held_out.texts)]
    uneven = list(zip(held_out.asked, cut))
    answers = model.predict(uneven)
    for (_, texts), answer, whole in zip(uneven, answers, found.predicted.answers):
        np.testing.assert_allclose(answer.scores, whole[: len(texts)], atol=1e-5)
        assert answer.order.tolist() == np.argsort(-answer.scores).tolist()
    rows = model.client().rows(records(uneven[:1], model.client().inputs))
    assert rows[0]["prediction"] == pytest.approx(answers[0].scores, abs=1e-5)


ARTICLE = {
    "article": "Ada met Mary.\nThey spoke.",
    "questions": ["Who met Mary?", "_ spoke."],
    "options": [["Ada", "Bob", "Eve", "Tom"], ["He", "She", "They", "It"]],
    "answers": ["A", "C"],
    "id": "high7.txt",
}
CHOICE = task_of("multiple_choice", "accuracy", labels=("0", "1", "2"), test=("test",))
PAIRS = parse(
    {**VALUES, "kind": "embedding", "columns": {"text_a": "a", "text_b": "b"}}, "pairs.json"
)


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
    assert not find_source(TASKS["race_middle"], str(tmp_path / "train"), "dev")


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
    ("task", "train", "run", "devices", "named"),
    [
        (CHOICE, 32, {}, 1, "train_batch_size"),
        (CHOICE, 33, {}, 2, "train_batch_size"),
        (CHOICE, 36, {"micro_batch_size": 4}, 1, "micro_batch_size"),
        (PAIRS, 32, {"micro_batch_size": 4}, 1, "micro_batch_size"),  # one loss for all
    ],
)
def test_batches_that_would_be_divided_are_rejected(task, train, run, devices, named):
    hparams = resolve_hparams({"max_seq_length": 32, "train_batch_size": train}, task, TINY)
    trial = Trial("", 0, {}, hparams, TaskData(task, (), {}, {}))
    with rejects(f"`{named}`"):
        plan = types.SimpleNamespace(run=FinetuningRunSettings(**run))
        strategy = types.SimpleNamespace(num_replicas_in_sync=devices)
        context = types.SimpleNamespace(plan=plan, strategy=strategy, config=TINY)
        _check_trials([trial], context)

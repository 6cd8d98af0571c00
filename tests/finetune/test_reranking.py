"""Reranking: examples, losses, metrics, what is learned, and what models give."""

import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn.metrics import ndcg_score

import convbert
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import load_task, parse
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.kinds.base import Predicted
from convbert.finetune.kinds.reranking import RerankingExample
from convbert.finetune.plan import make_plan
from convbert.finetune.task_data import load_task_data
from convbert.finetune.task_files import read_split
from convbert.model import EncoderOutput
from convbert.model.heads.task import RerankingHead
from convbert.serving.records import records
from tests.finetune.kinds_support import BAD, GOOD, HPARAMS, OTHER, declared, rejects
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


def test_a_sweep_reads_each_points_candidates(model_dir, tmp_path):
    """And of the training split only as many queries as are asked for."""
    rows = [json.dumps(row) for row in queries(8).to_dict("records")]
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

"""Text embeddings: the losses, what is learned, and what models give."""

import dataclasses
import json
import pathlib
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import convbert
from convbert.finetune import kinds
from convbert.finetune.batches import TrainingBatches
from convbert.finetune.declaration import parse
from convbert.finetune.frames import _declared
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.kinds.embedding import EmbeddingExample, reciprocal_rank
from convbert.finetune.kinds.embedding import nearest as nearest_share
from convbert.finetune.objective import FineTuning
from convbert.model import EncoderOutput, build_backbone
from convbert.model.heads.embedding import EmbeddingHead
from convbert.serving.records import records
from convbert.serving.search import as_int8, nearest, unit
from convbert.training.distribution import create_strategy
from convbert.training.loop import Trainer
from convbert.training.optimizer import create_optimizer
from tests.finetune.kinds_support import HPARAMS, OTHER, random_sequences, rejects
from tests.model_support import TINY, randomize

RANDOM = np.random.default_rng(0)


def output_of(vectors):
    states = tf.constant(vectors, tf.float32)[:, None]
    return EncoderOutput(states, states[:, 0], states, (), (), ())


def batch_of(n, G, text=None, weight=None):
    numbers = np.arange(n * G) if text is None else text
    weight = np.ones(n) if weight is None else weight
    return {
        "input_mask": tf.ones([n * G, 1], tf.int32),
        "text": tf.constant(numbers, tf.int32),
        "weight": tf.constant(np.repeat(weight, G), tf.float32),
    }


def expected(vectors, G, scale=20.0, text=None, weight=None):
    n = len(vectors) // G
    text = np.arange(n * G) if text is None else np.asarray(text)
    weight = np.ones(n) if weight is None else weight
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    losses = []
    for i in range(n):
        a, p = i * G, i * G + 1
        others = [
            j * G + g
            for j in range(n)
            for g in range(1, G)
            if j * G + g != p
            and weight[j]
            and text[j * G + g] not in (text[a], text[p])
            and not (g == 1 and text[j * G] == text[a])
        ]
        scores = scale * vectors[[p, *others]] @ vectors[a]
        losses.append(np.log(np.exp(scores - scores[0]).sum()))
    return losses


@pytest.mark.parametrize("G", [2, 3])
def test_the_loss_of_pairs_is_its_definition(G):
    vectors = RANDOM.normal(size=(5 * G, 8)).astype(np.float32)
    for text, weight in (
        (None, None),
        (RANDOM.integers(0, 6, 5 * G), None),
        (np.repeat(np.arange(5), G), None),  # SimCSE: both texts are one
        (None, np.array([1.0, 1.0, 0.0, 1.0, 1.0])),
    ):
        head = EmbeddingHead(G)
        found = head.loss(output_of(vectors), batch_of(5, G, text, weight), training=True)
        kept = np.ones(5) if weight is None else weight
        wanted = expected(vectors, G, text=text, weight=weight)
        np.testing.assert_allclose(found * kept, wanted * kept, rtol=1e-5, atol=1e-6)
    assert head.reads_whole_batch


def test_shorter_vectors_have_losses_of_their_own():
    vectors = RANDOM.normal(size=(8, 6)).astype(np.float32)
    head = EmbeddingHead(2, dimensions=(2, 4), scale=5.0)
    found = head.loss(output_of(vectors), batch_of(4, 2), training=True)
    wanted = sum(np.array(expected(vectors[:, :size], 2, 5.0)) for size in (2, 4, 6))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_scores_are_learned_by_the_cosine():
    vectors, label = RANDOM.normal(size=(6, 8)), RANDOM.random(3)
    batch = {**batch_of(3, 2), "label": tf.constant(np.repeat(label, 2), tf.float32)}
    head = EmbeddingHead(2, scored=True)
    found = head.loss(output_of(vectors), batch, training=True)
    norms = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    wanted = ((norms[::2] * norms[1::2]).sum(1) - label) ** 2
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert not head.reads_whole_batch


def test_the_mean_is_of_tokens_without_padding():
    states = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
    output = EncoderOutput(tf.constant(states), tf.constant(states[:, 0]), None, (), (), ())
    mask = tf.constant([[1, 1, 0], [1, 1, 1]])
    found = EmbeddingHead(2).predict(output, {"input_mask": mask})["embedding"]
    means = np.stack([states[0, :2].mean(0), states[1].mean(0)])
    np.testing.assert_allclose(found, unit(means), rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # needs fifteen seconds: two runs
def test_devices_share_their_negatives():
    """Equal weights after three steps with dropout, on one device and on two."""
    G, draw, found = 3, np.random.default_rng(0), []
    encoded = random_sequences("classification", [G] * 12, 12)
    encoded.sequences["text"] = draw.integers(0, 30, 12 * G).astype(np.int32)
    for name in ("one_device", "mirrored:2"):
        strategy = create_strategy(name)
        with strategy.scope():
            config = TINY.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
            objective = FineTuning(build_backbone(config), EmbeddingHead(G))
            randomize(objective.encoder, scale=0.3)
            optimizer = create_optimizer("adam", 2e-3, 0.0, objective.trainable_variables)
        batches = TrainingBatches(encoded, 4 * G, 3, group_size=G, max_seq_length=16)
        trainer = Trainer(objective, optimizer, batches, seed=3, strategy=strategy)
        metrics = trainer.train(3)
        weights = [variable.numpy() for variable in objective.trainable_variables]
        found.append((metrics["loss"], weights))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    with rejects("xla"):
        Trainer(objective, optimizer, batches, seed=3, strategy=strategy, xla=True)
    with rejects("micro_batch_size"):
        Trainer(objective, optimizer, batches, seed=3, strategy=strategy, micro_batches=2)


def pairs(count, seed=0):
    draw, rows = np.random.default_rng(seed), []
    for _ in range(count):
        words = draw.choice(OTHER, 3, replace=False)
        rows.append([" ".join(draw.permutation(words)) for _ in range(2)])
    return pd.DataFrame(rows, columns=["text_a", "text_b"])


def test_pairs_are_learned_and_found(model_dir, tmp_path):
    given = {"kind": "embedding", "metrics": ["mrr", "nearest"], "output_dir": tmp_path}
    given["hparams"] = {**HPARAMS, "train_batch_size": 32, "dimensions": [4]}
    trained = convbert.fine_tune(model_dir, pairs(300), pairs(60, 1), **given)
    chance = 100.0 * np.mean(1.0 / np.arange(1, 61))
    assert trained.scores["dev"]["mrr"] > 3 * chance
    model, dev = convbert.load(trained.folder), pairs(60, 1)
    assert model.kind == "embedding"
    corpus = model.embed(dev["text_b"])
    np.testing.assert_allclose(np.linalg.norm(corpus, axis=1), 1.0, rtol=1e-5)
    found = model.search(dev["text_a"], corpus, k=60)
    ranks = [1 + row.tolist().index(i) for i, row in enumerate(found.indices)]
    mrr = 100.0 * np.mean(1.0 / np.array(ranks))
    assert mrr == pytest.approx(trained.scores["dev"]["mrr"], abs=0.5)
    cosines = model.similarity(dev["text_a"], dev["text_b"])
    np.testing.assert_allclose(cosines.max(1), found.scores[:, 0], rtol=1e-5)
    assert model.evaluate(dev).scores == pytest.approx(trained.scores["dev"], abs=0.5)
    row = model.client().rows(records(["w1 w2"], model.client().inputs))[0]
    np.testing.assert_allclose(row["prediction"], model.embed("w1 w2"), atol=1e-6)
    listed = model.similarity([*corpus[0]], [*corpus])  # of NumPy's numbers
    np.testing.assert_allclose(listed, corpus[:1] @ corpus.T, atol=1e-5)
    asked = model.ask("similarity", list(zip(dev["text_a"], dev["text_b"])))
    np.testing.assert_allclose(asked.similarity, np.diag(cosines), atol=1e-5)
    short = model.embed("w1 w2", dimensions=4)
    np.testing.assert_allclose(short, unit(model.embed("w1 w2"), 4), rtol=1e-5)
    with rejects("dimensions"):
        model.embed("w1", dimensions=17)


def test_equal_vectors_are_the_worst():
    examples = [EmbeddingExample(str(i), f"a{i}", f"b{i}", None, None) for i in range(5)]
    predicted = SimpleNamespace(examples=examples, outputs={"embedding": np.ones([10, 3])})
    assert reciprocal_rank(predicted, []) == 0.2
    assert nearest_share(predicted, []) == 0.0
    for second, collapsed in (("a", False), ("b", True)):  # only other texts can collapse
        examples = [EmbeddingExample(str(i), "a", second, None, None) for i in range(3)]
        predicted = SimpleNamespace(examples=examples, answers=[1.0] * 3)
        assert (kinds.get("embedding").collapsed(predicted) is not None) == collapsed


def test_what_does_not_compete():
    """The text itself, in pairs of both orders; a pair of one text has no rank."""
    examples = [EmbeddingExample(str(i), *"ab"[:: 1 - 2 * i], None, None) for i in (0, 1)]
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.9, 0.1], [1.0, 0.0]])
    predicted = SimpleNamespace(examples=examples, outputs={"embedding": vectors})
    assert nearest_share(predicted, []) == 1
    same, task = [EmbeddingExample("0", "a", "a", None, None)], SimpleNamespace(metrics=["mrr"])
    predicted = SimpleNamespace(task=task, examples=same, outputs={"embedding": vectors[:2]})
    assert kinds.get("embedding").score(predicted) == {"mrr": None}


@pytest.mark.slow  # needs twelve seconds: a run
def test_roles_and_scores_of_tables(model_dir, tmp_path):
    """Negatives in training alone, scores in the development table alone."""
    train = pairs(40).assign(negative="w1 w2 w3")
    dev = pairs(20).assign(label=np.linspace(0, 5, 20))
    hparams = {**HPARAMS, "max_steps": 1, "train_batch_size": 6}
    given = {"kind": "embedding", "hparams": hparams, "output_dir": tmp_path}
    run = convbert.fine_tune(model_dir, train, dev, **given)
    model = convbert.load(run.folder)
    per_split = model.description["task"]["per_split"]
    columns = {split: own["columns"] for split, own in per_split.items()}
    assert ("negative" in columns["train"], "label" in columns["train"]) == (True, False)
    assert ("negative" in columns["dev"], "label" in columns["dev"]) == (False, True)
    evaluation = model.evaluate(dev)
    (path,) = pathlib.Path(run.folder).rglob("dev.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["label"] for row in rows] == pytest.approx(dev["label"].tolist())
    answers = [row["prediction"] for row in rows]
    np.testing.assert_allclose(evaluation.predicted.answers, answers, atol=1e-5)
    assert {*evaluation.scores} == {*run.scores["dev"]} == {"spearman", "pearson"}
    # Of four rows, some bootstrap samples have one value.
    dev.to_json(tmp_path / "dev.jsonl", orient="records", lines=True)
    assert model.evaluate(tmp_path / "dev.jsonl").scores == pytest.approx(evaluation.scores)
    for found in (evaluation, model.evaluate(dev.iloc[[0, 1, 2, -1]])):
        for name, (low, high) in found.intervals().items():
            assert -100 <= low <= found.scores[name] <= high <= 100


PAIR = {"text_a": "a", "text_b": "b"}
DECLARED = {"name": "own", "kind": "embedding", "files": {"train": "a.jsonl", "dev": "a.jsonl"}}


@pytest.mark.parametrize(
    ("columns", "metric", "named"),
    [
        ({"text_a": "a"}, "mrr", "text_b"),
        (PAIR, "spearman", "metrics"),
        ({**PAIR, "negative": "c", "label": "d"}, "spearman", "negative"),
    ],
)
def test_columns_that_do_not_fit(columns, metric, named):
    with rejects(named):
        parse({**DECLARED, "columns": columns, "metrics": [metric]}, "own.json")


def test_hyper_parameters_that_do_not_fit():
    task, scored = (
        parse({**DECLARED, "columns": {**PAIR, **more}}, "own.json")
        for more in ({}, {"label": "c"})
    )
    assert (task.metrics, scored.metrics) == (("mrr", "nearest"), ("spearman", "pearson"))
    for own, values in (
        (task, {"dimensions": [TINY.hidden_size]}),
        (task, {"dimensions": [4, 4]}),
        (task, {"train_batch_size": 3}),
        (scored, {"scale": 5.0}),
    ):
        with rejects(next(iter(values))):
            resolve_hparams(values, own, TINY)
    examples = [EmbeddingExample(str(i), f"a{i}", "b", None, None) for i in range(3)]
    with rejects("negatives"):
        task.plugin.training_examples(task, examples, None)
    same = [dataclasses.replace(example, text_b=example.text_a) for example in examples]
    given = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    with rejects("hidden_dropout_prob"):  # SimCSE, whose vectors differ by dropout
        task.plugin.training_examples(task, same, resolve_hparams(given, task, TINY))
    dropped = resolve_hparams({**given, "attention_probs_dropout_prob": 0.1}, task, TINY)
    assert task.plugin.training_examples(task, same, dropped) == same


@pytest.mark.parametrize(("labels", "given", "expected"), [
    ((0.3, 0.9), None, (0.0, 1.0)),
    ((1.0, 4.0), None, (1.0, 4.0)),
    ((1.0, 4.0), [0.0, 5.0], (0.0, 5.0)),
])  # fmt: skip
def test_the_range_of_scores_of_a_table(labels, given, expected):
    table = pairs(2).assign(label=labels)
    tables = {"train": table, "dev": table}
    task = _declared(tables, "own", "embedding", None, (), given)
    assert task.label_range == expected


@pytest.mark.parametrize("block", [7, 9003, 1 << 24])  # one query, some, all
def test_the_nearest_are_exact(block, monkeypatch):
    monkeypatch.setattr("convbert.serving.search._BLOCK", block)
    for size, k in ((1000, 20), (3001, 20), (64 * 40, 5)):
        for whole in (False, True):  # of whole numbers, many are equal: the first is nearer
            draw = partial(RANDOM.integers, -2, 3) if whole else partial(RANDOM.normal, 0, 1)
            corpus, queries = (draw((n, 5)).astype(np.float32) for n in (size, 7))
            found = nearest(queries, corpus, k)
            products = queries @ corpus.T
            wanted = np.argsort(-products, axis=1, kind="stable")[:, :k]
            np.testing.assert_array_equal(found.indices, wanted)
            np.testing.assert_allclose(found.scores, np.take_along_axis(products, wanted, 1), 1e-6)
    one = np.ones([1, 3], np.float32)
    assert nearest(one, one, 2).indices.tolist() == [[0]]  # all of a small corpus
    wrong = [(one, k, "`k`") for k in (0, 1.0, "1", True)]
    wrong += [(one[:0], 1, "corpus"), (one[:, :2], 1, "length"), (one[0], 1, "vectors")]
    for corpus, k, named in wrong:
        with rejects(named):
            nearest(one, corpus, k)
    for dimensions in (0, 4, 2.0, True):
        with rejects("dimensions"):
            unit(one, dimensions)


def test_whitened_vectors_are_uncorrelated():
    draw = np.random.default_rng(2)
    vectors = draw.normal(size=(500, 6)) @ draw.normal(size=(6, 6)) + 5.0
    white = convbert.whitening(vectors)
    changed = (unit(vectors) - white.mean) @ white.matrix
    np.testing.assert_allclose(changed.mean(0), 0.0, atol=1e-3)
    variances = np.linalg.eigvalsh(np.cov(unit(vectors).T))
    kept = variances / (variances + 1e-4 * variances.mean())  # small ones are not blown up
    np.testing.assert_allclose(np.cov(changed.T), np.diag(kept), atol=1e-3)
    np.testing.assert_allclose(white(vectors), unit(changed), atol=1e-5)
    cosines = white(vectors) @ white(as_int8(vectors)).T  # as after an `embed` of 8 bits
    assert (cosines.argmax(1) == np.arange(500)).mean() > 0.95
    for wrong in (vectors[0], vectors[:1], np.ones([9, 2]), np.full([9, 2], np.nan)):
        with rejects("vectors"):
            convbert.whitening(wrong)


def test_vectors_of_eight_bits():
    model = convbert.load("tiny")
    texts = ["The weather is fine.", "It rains.", "Arrays have axes."]
    vectors, small = model.embed(texts), model.embed(texts, precision="int8")
    assert small.dtype == np.int8
    assert np.abs(small).max(-1).tolist() == [127] * 3
    found, expected = model.similarity(small, small), model.similarity(texts, texts)
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert model.search(vectors, small, 1).indices.ravel().tolist() == [0, 1, 2]
    with rejects("`precision`", "int4"):
        model.embed(texts, precision="int4")

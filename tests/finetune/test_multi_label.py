"""Several labels of a text: files, loss, metrics; a task that is learned, exported and asked."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
import tensorflow as tf

import convbert
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from finetune.declaration import load_task
from finetune.kinds.texts import TextExample
from finetune.task_files import read_split, resolve_labels
from model.backbone import EncoderOutput
from model.heads.task import MultiLabelHead
from serving import export, litert_export
from serving.load import load
from tests.finetune.kinds_support import declared, model_directory, predicted, rejects, task_of
from tests.model_support import normal

TOPICS = {"sport": ["ball", "goal"], "music": ["song", "band"], "film": ["film", "scene"]}
OTHER = [f"w{i}" for i in range(30)]
NAMES = tuple(sorted(TOPICS))
HPARAMS = {"learning_rate": 3e-3, "num_train_epochs": 15, "train_batch_size": 8}
HPARAMS |= {"max_seq_length": 24, "loss_reduction": "mean"}


def topics(count, seed=0):
    """Texts with words of none to three topics, and the list of these."""
    draw, rows = np.random.default_rng(seed), []
    for _ in range(count):
        chosen = [name for name in NAMES if draw.random() < 0.5]
        words = draw.choice(OTHER, 5).tolist() + [draw.choice(TOPICS[name]) for name in chosen]
        rows.append((" ".join(draw.permutation(words)), chosen))
    return pd.DataFrame(rows, columns=["text", "label"])


COLUMNS = ["sport", "music", "film"]


def read(folder, lines, label="topics", ending="jsonl", **fields):
    """The task, its labels resolved, and the training examples of these lines."""
    splits = {"train": lines, "dev": lines}
    columns = {"text_a": "text", "label": label}
    path = declared(folder, splits, columns, ending, "multi_label", **fields)
    task = resolve_labels(load_task(path), "")
    return task, read_split(task, "", "train")


def json_lines(names, *rows):
    return [json.dumps(dict(zip(names, row))) for row in rows]


LISTED = [("a", ["sport", "film"]), ("b", []), ("c", ["music", "sport"])]
TICKED = [("a", 1, 0, 1), ("b", False, False, False), ("c", True, 1.0, 0)]


@pytest.mark.parametrize(
    ("label", "ending", "lines"),
    [
        ("topics", "csv", ["text,topics", "a,sport|film", "b,", "c, music | sport "]),
        ("topics", "jsonl", json_lines(("text", "topics"), *LISTED)),
        (COLUMNS, "csv", ["text,sport,music,film", "a,1,0,1", "b,False,false,0", "c,True,1.0,0"]),
        (COLUMNS, "jsonl", json_lines(("text", *COLUMNS), *TICKED)),
    ],
)
def test_labels_are_lists_or_cells_or_have_columns(tmp_path, label, ending, lines):
    task, examples = read(tmp_path, lines, label, ending)
    assert task.metrics[0] == "micro_f1"
    assert task.labels == (("film", "music", "sport") if label == "topics" else tuple(label))
    chosen = [{n for n, own in zip(task.labels, x.label) if own} for x in examples]
    assert chosen == [{"sport", "film"}, set(), {"music", "sport"}]


def test_columns_may_have_no_names_and_be_hidden_in_the_test_split(tmp_path):
    lines = dict.fromkeys(("train", "dev", "test"), ("a\t1\t0", "b\t\t"))
    fields = {"kind": "multi_label", "labels": ["x", "y"], "header": False}
    task = load_task(declared(tmp_path, lines, {"text_a": 0, "label": [1, 2]}, "tsv", **fields))
    assert [x.label for x in read_split(task, "", "test")] == [(True, False), None]


def test_the_loss_is_the_mean_cross_entropy_of_the_labels():
    pooled, gold = normal(4, 6), np.float32([[0, 1, 1], [0, 0, 0], [1, 1, 1], [1, 0, 0]])
    head, output = MultiLabelHead(3), EncoderOutput(None, tf.constant(pooled))
    batch = {"label": tf.constant(gold), "weight": tf.ones([4])}
    logits = np.float64(head.predict(output, batch)["logits"])
    shares = 1.0 / (1.0 + np.exp(-logits))
    expected = -np.mean(gold * np.log(shares) + (1 - gold) * np.log(1 - shares), axis=1)
    found = head.loss(output, batch, training=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def answered(gold, logits, *metrics):
    task = task_of("multi_label", *metrics, labels=("a", "b", "c"))
    examples = [TextExample(str(i), "text", None, tuple(row)) for i, row in enumerate(gold)]
    answers = task.plugin.values(task, {"logits": logits}).tolist()
    return predicted(task, examples, answers, {"logits": logits})


def test_metrics_are_those_of_scikit_learn():
    draw = np.random.default_rng(0)
    gold, logits = draw.random([40, 3]) < 0.4, draw.normal(size=[40, 3])
    found = answered(gold.tolist(), logits, "micro_f1", "macro_f1", "accuracy", "roc_auc")
    one, other, f1_score = gold, logits >= 0, sklearn.metrics.f1_score
    expected = {
        "micro_f1": f1_score(one, other, average="micro"),
        "macro_f1": f1_score(one, other, average="macro"),
        "accuracy": np.mean(np.all(one == other, axis=1)),
        "roc_auc": sklearn.metrics.roc_auc_score(one, logits, average="macro"),
    }
    scores = found.task.plugin.score(found)
    assert scores == pytest.approx({name: 100 * value for name, value in expected.items()})
    by_label = found.task.plugin.by_label(found)
    assert by_label["b"]["f1"] == pytest.approx(100 * f1_score(one[:, 1], other[:, 1]))


def test_what_is_constant_is_said():
    gold = [[True, False, True], [True, False, True], [True, True, False]]
    found = answered(gold, np.full([3, 3], -1.0), "micro_f1", "roc_auc")
    kind = found.task.plugin
    scores = kind.score(found)
    assert scores == {"micro_f1": 0.0, "roc_auc": None}
    assert "a" in kind.undefined(found, scores)["roc_auc"]
    assert kind.collapsed(found) is not None
    ((_, named, answers),) = kind.baselines(found.task, found.examples)
    assert named == ["a", "c"]
    assert answers == [(True, False, True)] * 3


def test_it_is_learned_exported_and_asked(tmp_path):
    words = (*SPECIAL_TOKENS, *OTHER, *(word for own in TOPICS.values() for word in own))
    model_dir = model_directory(tmp_path / "model", Vocabulary(words))
    dev = topics(60, 1)
    given = {"output_dir": tmp_path / "run", "hparams": HPARAMS}
    run = convbert.fine_tune(model_dir, topics(320), dev, **given)
    scores = run.scores["dev"]
    assert scores["micro_f1"] > 95.0

    model = convbert.load(run.folder)
    answers = model.predict(dev)
    evaluated = model.evaluate(dev).scores
    assert evaluated["micro_f1"] == pytest.approx(scores["micro_f1"])
    lines = (tmp_path / "run").rglob("predictions/dev.jsonl")
    rows = [json.loads(line) for line in next(iter(lines)).open()]
    assert rows[0]["prediction"] == [n for n, own in zip(NAMES, answers.chosen[0]) if own]
    assert math.isclose(rows[0]["probabilities"]["film"], answers.probabilities[0, 0], abs_tol=1e-5)

    for name, write in (("savedmodel", export.export), ("litert", litert_export.export)):
        write(load(run.folder), str(tmp_path / name), run.folder)
        again = convbert.load(tmp_path / name).predict(dev)
        np.testing.assert_allclose(again.probabilities, answers.probabilities, atol=1e-5)


@pytest.mark.parametrize("topics", [["sport", "sprot"], 3, [None]])
def test_wrong_labels_are_named_with_their_line(topics, tmp_path):
    lines = json_lines(("text", "topics"), ("a", ["sport", "film"]), ("b", topics))
    with rejects("train.jsonl, line 2"):
        read(tmp_path, lines, labels=["film", "sport"])
    with rejects("line 3: 'music'"):
        read(tmp_path, ["text,sport,music,film", "a,1,0,1", "b,0,2,1"], COLUMNS, "csv")

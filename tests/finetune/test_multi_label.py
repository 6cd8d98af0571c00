"""Several labels of a text: files and loss."""

import json

import numpy as np
import pytest
import tensorflow as tf

from convbert.finetune.declaration import load_task
from convbert.finetune.task_files import read_split, resolve_labels
from convbert.model.backbone import EncoderOutput
from convbert.model.heads.task import MultiLabelHead
from tests.finetune.kinds_support import declared, rejects
from tests.model_support import normal


def read(folder, lines, ending="jsonl", **fields):
    """The task, its labels resolved, and the training examples of these lines."""
    splits, columns = {"train": lines, "dev": lines}, {"text_a": "text", "label": "topics"}
    path = declared(folder, splits, columns, ending, "multi_label", **fields)
    task = resolve_labels(load_task(path), "")
    return task, read_split(task, "", "train")


def json_lines(*rows):
    return [json.dumps(dict(zip(("text", "topics"), row))) for row in rows]


LISTED = [("a", ["sport", "film"]), ("b", []), ("c", ["music", "sport"])]


@pytest.mark.parametrize(
    ("ending", "lines"),
    [
        ("csv", ["text,topics", "a,sport|film", "b,", "c, music | sport "]),
        ("jsonl", json_lines(*LISTED)),
    ],
)
def test_labels_are_lists_or_cells(tmp_path, ending, lines):
    task, examples = read(tmp_path, lines, ending)
    assert task.metrics[0] == "micro_f1"
    assert task.labels == ("film", "music", "sport")
    assert [task.plugin.gold(task, x) for x in examples] == [
        ["film", "sport"],
        [],
        ["music", "sport"],
    ]


@pytest.mark.parametrize("topics", [["sport", "sprot"], 3, [None]])
def test_wrong_labels_are_named_with_their_line(topics, tmp_path):
    lines = json_lines(("a", ["sport", "film"]), ("b", topics))
    with rejects("train.jsonl, line 2"):
        read(tmp_path, lines, labels=["film", "sport"])


def test_the_loss_is_the_mean_cross_entropy_of_the_labels():
    pooled, gold = normal(4, 6), np.float32([[0, 1, 1], [0, 0, 0], [1, 1, 1], [1, 0, 0]])
    head, output = MultiLabelHead(3), EncoderOutput(None, tf.constant(pooled))
    batch = {"label": tf.constant(gold), "weight": tf.ones([4])}
    logits = np.float64(head.predict(output, batch)["logits"])
    shares = 1.0 / (1.0 + np.exp(-logits))
    expected = -np.mean(gold * np.log(shares) + (1 - gold) * np.log(1 - shares), axis=1)
    found = head.loss(output, batch, training=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5)

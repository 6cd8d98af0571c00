"""Heads of fine-tuned models in Hugging Face's files, there and back without transformers."""

import json

import numpy as np
import pytest

from convbert.checkpoints import formats, huggingface
from convbert.checkpoints.model_directory import Options
from tests.checkpoints.task_head_support import CASES, features, folder_of, reread, written
from tests.huggingface_support import change_tensors, rejected

LABELS = "convbert labels"
TAGS = {"words": "words", "tags": "tags"}


SAME_SLOTS = ("convbert several labels", "electra tags")  # as those of another case


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow if case in SAME_SLOTS else ()) for case in CASES],
)
def test_there_and_back(tmp_path, case):
    objective, folder = written(tmp_path, case)
    said = json.loads((folder / "config.json").read_text())
    assert said["architectures"] == [CASES[case].architecture]
    back = reread(folder, case)
    batch = features(objective.encoder.config.vocab_size)
    expected, received = objective.predict(batch), back.objective.predict(batch)
    assert set(received) == set(expected)
    for name, value in expected.items():
        if value.dtype.is_floating:
            np.testing.assert_allclose(received[name], value, rtol=1e-5, atol=1e-6)
        else:
            assert received[name].numpy().tolist() == value.numpy().tolist()


def test_labels_in_another_order(tmp_path):
    objective, folder = written(tmp_path, LABELS)
    batch = features(objective.encoder.config.vocab_size)
    expected = objective.predict(batch)["logits"].numpy()
    back = reread(folder, LABELS, labels=("good", "bad", "fair"))  # there: bad, fair, good
    received = back.objective.predict(batch)["logits"].numpy()
    np.testing.assert_allclose(received, expected[:, [2, 0, 1]], atol=1e-6)


def test_a_linear_head_is_left_out(tmp_path):
    """transformers has no such: the encoder is written, as it was before."""
    objective = folder_of(tmp_path / "run", LABELS, {"classifier": "linear"})
    notes = formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "out"))
    said = json.loads((tmp_path / "out" / "config.json").read_text())
    assert said["architectures"] == ["ConvBertModel"]
    assert any("task head is left out" in note for note in notes)
    encoder = huggingface.read(str(tmp_path / "out"), Options()).objective.encoder
    for one, other in zip(encoder.weights, objective.encoder.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def another_layer(held):
    return held | {"classifier.middle.weight": np.ones([2, 2], np.float32)}


@pytest.mark.parametrize(
    ("changes", "change", "said"),
    [
        ({"labels": ["bad", "good"]}, dict, "id2label"),
        pytest.param({"labels": ["bad", "fair", "best"]}, dict, "id2label", marks=pytest.mark.slow),
        pytest.param(
            {"kind": "regression", "labels": None, "metrics": None},
            *(dict, "kind"),
            marks=pytest.mark.slow,
        ),
        ({"kind": "tagging", "columns": TAGS, "metrics": None}, dict, "classifier.weight"),
        ({}, another_layer, "classifier.middle.weight"),
    ],
)
def test_another_head_is_an_error(tmp_path, changes, change, said):
    _, folder = written(tmp_path, LABELS)
    change_tensors(folder, change)
    with rejected(said):
        reread(folder, LABELS, **changes)
    assert not (tmp_path / "back").exists()


def test_a_pooler_is_of_bert_alone(tmp_path):
    folder_of(tmp_path / "run", LABELS, {"classifier": "pooler"})
    with rejected("classifier"):
        formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "out"))

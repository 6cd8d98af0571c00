"""Heads of fine-tuned models in Hugging Face's files: there and back, and as transformers has them.
The latter is slow, and needs the extra `peers` (see tests/peers.py) and a minute; without these
packages it is skipped and says so."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest

from convbert.checkpoints import formats, huggingface
from convbert.checkpoints.model_directory import Options
from convbert.finetune.load import load_fine_tuned
from convbert.model.heads.task import TaggingHead
from tests import peers
from tests.finetune.kinds_support import rejects
from tests.huggingface_support import change_tensors
from tests.model_support import random_features, slow_but
from tests.serving.support import fine_tuned, task

PLAIN: dict[str, Any] = {"token_mixer": "attention", "head_ratio": 1, "linear_groups": 1}
WIDE = {**PLAIN, "embedding_size": 16}  # as its layers, which BERT needs


class Case(NamedTuple):
    """A kind, its settings, the encoder's, and what transformers calls that."""

    kind: str
    hparams: dict[str, Any]
    config: dict[str, Any]
    architecture: str


DENSE, POOLER = {"classifier": "dense"}, {"classifier": "pooler"}
CASES = {
    "convbert labels": Case("classification", DENSE, {}, "ConvBertForSequenceClassification"),
    "bert labels": Case("classification", POOLER, WIDE, "BertForSequenceClassification"),
    "convbert several labels": Case("multi_label", DENSE, {}, "ConvBertForSequenceClassification"),
    "convbert tags": Case("tagging", {}, {}, "ConvBertForTokenClassification"),
    "electra tags": Case("tagging", {}, PLAIN, "ElectraForTokenClassification"),
}
SLOW = pytest.mark.slow
LABELS = "convbert labels"
TAGS = {"words": "words", "tags": "tags"}
SAME_SLOTS = {"convbert several labels", "electra tags"}  # as those of another case


def run_of(folder, case, hparams=None):
    """Writes the folder of a run of random weights; returns its objective."""
    kind, own, config, _ = CASES[case]
    config = {"mask_padding": False, "num_hidden_layers": 2, **config}
    return fine_tuned(folder, task(kind), hparams={**own, **(hparams or {})}, **config)[0]


def written(tmp_path, case):
    """A run and its folder in Hugging Face's format."""
    objective = run_of(tmp_path / "run", case)
    formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "theirs"))
    return objective, tmp_path / "theirs"


def reread(folder, case, **changes):
    """Converts a folder in Hugging Face's format; omits fields of the task that are None."""
    values = {**task(CASES[case].kind).to_json(), **changes}
    values = {name: value for name, value in values.items() if value is not None}
    path, output = folder.parent / "task.json", folder.parent / "back"
    path.write_text(json.dumps(values))
    formats.from_elsewhere("huggingface", str(folder), str(output), Options(task=str(path)))
    return load_fine_tuned(str(output)).objective


def features(objective):
    """Sequences of several lengths, padded; the second half of each is of another segment."""
    return random_features(3, 12, (12, 9, 5), objective.encoder.config.vocab_size)


@pytest.mark.parametrize("case", slow_but(CASES.keys() - SAME_SLOTS, CASES))
def test_there_and_back(tmp_path, case):
    objective, folder = written(tmp_path, case)
    said = json.loads((folder / "config.json").read_text())
    assert said["architectures"] == [CASES[case].architecture]
    back = reread(folder, case)
    batch = features(objective)
    expected, received = objective.predict(batch), back.predict(batch)
    assert set(received) == set(expected)
    for name, value in expected.items():
        if value.dtype.is_floating:
            np.testing.assert_allclose(received[name], value, rtol=1e-5, atol=1e-6)
        else:
            assert received[name].numpy().tolist() == value.numpy().tolist()


def test_labels_in_another_order(tmp_path):
    objective, folder = written(tmp_path, LABELS)
    batch = features(objective)
    expected = objective.predict(batch)["logits"].numpy()
    back = reread(folder, LABELS, labels=("good", "bad", "fair"))  # there: bad, fair, good
    received = back.predict(batch)["logits"].numpy()
    np.testing.assert_allclose(received, expected[:, [2, 0, 1]], atol=1e-6)


def test_a_linear_head_is_left_out(tmp_path):
    """transformers has no such: the encoder is written, as it was before."""
    objective = run_of(tmp_path / "run", LABELS, {"classifier": "linear"})
    notes = formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "out"))
    said = json.loads((tmp_path / "out" / "config.json").read_text())
    assert said["architectures"] == ["ConvBertModel"]
    assert any("task head is left out" in note for note in notes)
    encoder = huggingface.read(str(tmp_path / "out"), Options()).objective.encoder
    for one, other in zip(encoder.weights, objective.encoder.weights, strict=True):
        np.testing.assert_array_equal(one, other)


LAYER = {"classifier.middle.weight": np.ones([2, 2], np.float32)}


@pytest.mark.parametrize(
    ("changes", "change", "said"),
    [
        ({"labels": ["bad", "good"]}, dict, "id2label"),
        pytest.param({"labels": ["bad", "fair", "best"]}, dict, "id2label", marks=SLOW),
        pytest.param(
            {"kind": "regression", "labels": None, "metrics": None}, dict, "kind", marks=SLOW
        ),
        ({"kind": "tagging", "columns": TAGS, "metrics": None}, dict, "classifier.weight"),
        ({}, lambda held: held | LAYER, "classifier.middle.weight"),
    ],
)
def test_another_head_is_an_error(tmp_path, changes, change, said):
    _, folder = written(tmp_path, LABELS)
    change_tensors(folder, change)
    with rejects(said):
        reread(folder, LABELS, **changes)
    assert not (tmp_path / "back").exists()


def test_a_pooler_is_of_bert_alone(tmp_path):
    run_of(tmp_path / "run", LABELS, {"classifier": "pooler"})
    with rejects("classifier"):
        formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "out"))


def assert_transformers_computes(objective, case, folder):
    """It loads every tensor and no other."""
    batch, head = features(objective), objective.head
    found = peers.ask(peers.outputs, CASES[case].architecture, folder, batch)
    assert not any(found[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    output = objective.encoder(batch)
    logits = head(output.sequence if isinstance(head, TaggingHead) else output.pooled)
    np.testing.assert_allclose(logits, found["outputs"]["logits"], atol=2e-5)
    assert found["labels"] == tuple(task(CASES[case].kind).labels)


@pytest.mark.slow  # see above for what it needs
@pytest.mark.parametrize("case", CASES)
def test_transformers_gives_our_outputs(tmp_path, transformers, case):
    objective, folder = written(tmp_path, case)
    assert_transformers_computes(objective, case, folder)


@pytest.mark.slow  # see above for what it needs
@pytest.mark.parametrize("case", CASES)
def test_a_model_of_transformers_gives_its_outputs_here(tmp_path, transformers, case):
    _, folder = written(tmp_path, case)  # the vocabulary and the shapes
    peers.ask(peers.make_like, CASES[case].architecture, folder)
    assert_transformers_computes(reread(folder, case), case, folder)

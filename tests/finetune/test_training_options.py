"""What the papers do not have: weights of labels, smoothing, fewer examples, more metrics."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import convbert
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from errors import InputError
from finetune import metrics
from model.backbone import EncoderOutput
from model.heads.task import ClassificationHead
from tests.finetune.kinds_support import model_directory
from tests.finetune.test_frames import BAD, GOOD, HPARAMS, OTHER, reviews
from tests.model_support import normal
from tests.serving.support import task

POOLED = normal(5, 4)
LABELS = np.array([0, 2, 1, 2, 0], np.int32)
COLUMNS = {"text_a": "review", "label": "verdict"}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *GOOD, *BAD, *OTHER))
    return model_directory(tmp_path_factory.mktemp("options") / "model", vocabulary)


def losses(training=False, **options):
    """Losses and weights of five texts, the last of which fills the batch; log-probabilities."""
    tf.random.set_seed(0)
    head = ClassificationHead(3, **options)
    batch = {"label": tf.constant(LABELS), "weight": tf.constant([1.0, 1.0, 1.0, 1.0, 0.0])}
    output = EncoderOutput(None, tf.constant(POOLED))
    logits = head.predict(output, batch)["logits"]
    found = head.loss(output, batch, training=training, seed=tf.constant([1, 2]))
    shares = tf.nn.log_softmax(logits).numpy()
    return found.numpy(), head.loss_weights(batch).numpy(), shares


def test_smoothing_gives_all_labels_a_share_in_training(monkeypatch):
    monkeypatch.setattr("model.heads.task.HEAD_DROPOUT", 0.0)
    found, _, log_shares = losses(training=True, label_smoothing=0.3)
    target = np.eye(3)[LABELS] * 0.7 + 0.1
    np.testing.assert_allclose(found, -np.sum(target * log_shares, 1), rtol=1e-5)
    found, _, log_shares = losses(label_smoothing=0.3)
    np.testing.assert_allclose(found, -log_shares[range(5), LABELS], rtol=1e-5)


def test_labels_have_weights():
    _, weights, _ = losses(class_weights=[1.0, 2.0, 0.5])
    assert weights.tolist() == [1.0, 0.5, 2.0, 0.5, 0.0]


def result_of(run):
    return json.loads((pathlib.Path(run.folder) / "result.json").read_text())


def test_fewer_examples_and_steps(model_dir, tmp_path):
    given = {"columns": COLUMNS, "hparams": {**HPARAMS, "max_train_examples": 24, "max_steps": 5}}
    run = convbert.fine_tune(model_dir, reviews(80), reviews(9, 1), output_dir=tmp_path, **given)
    result = result_of(run)
    assert (result["train_rows"], result["steps"]) == (24, 5)


def test_a_label_without_weight_is_not_learned(model_dir, tmp_path):
    given = {"columns": COLUMNS, "hparams": {**HPARAMS, "class_weights": {"no": 0.0}}}
    run = convbert.fine_tune(model_dir, reviews(80), reviews(40, 1), output_dir=tmp_path, **given)
    assert set(convbert.load(run.folder).predict(reviews(40, 1)).label) == {"yes"}
    numbered = {
        split: reviews(80, seed).replace({"no": 0, "yes": 1})
        for seed, split in enumerate(("train", "dev"))
    }
    given["hparams"] = {**HPARAMS, "class_weights": {0: 0.0}}
    run = convbert.fine_tune(model_dir, **numbered, output_dir=tmp_path / "numbers", **given)
    assert set(convbert.load(run.folder).predict(reviews(40, 1)).label) == {"1"}
    given["hparams"] = {**HPARAMS, "class_weights": {"maybe": 2.0}}
    with pytest.raises(InputError):
        convbert.fine_tune(model_dir, reviews(80), output_dir=tmp_path / "other", **given)


def test_scores_of_entities_by_type():
    labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    own = task("tagging", labels=labels, metrics=("f1", "precision", "recall"))
    gold = [[1, 2, 0, 3], [3, 4, 0]]
    answers = [[1, 2, 0, 0], [3, 0, 1]]
    found = pd.DataFrame(metrics.by_entity(own, gold, answers)).T
    assert found.loc["PER", ["precision", "recall", "support"]].tolist() == [50.0, 100.0, 1.0]
    assert found.loc["LOC", ["precision", "recall", "support"]].tolist() == [0.0, 0.0, 2.0]
    # One of three found is right, of three that are there.
    assert metrics.entity_precision(own, gold, answers) == pytest.approx(1 / 3)
    assert metrics.entity_recall(own, gold, answers) == pytest.approx(1 / 3)


def test_the_area_under_the_curve():
    shares = np.array([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]])
    assert metrics.roc_auc([0, 0, 1, 1], shares) == pytest.approx(0.75)
    assert np.isnan(metrics.roc_auc([0, 0, 0, 0], shares))

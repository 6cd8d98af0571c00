"""Metrics are sums; `metrics.jsonl` has every row once, whatever was killed or measured again."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from convbert.common.errors import TrainingStopped
from convbert.training import metrics
from convbert.training.monitoring import MetricsLog, read_metrics


def rows(folder):
    return [(r["step"], r["split"], r["loss"]) for r in read_metrics(str(folder))]


def log_losses(folder, count):
    step = tf.Variable(0)
    log = MetricsLog(str(folder), step)
    for number in range(1, count + 1):
        step.assign(number)
        log.add("train", {"loss": float(number)})
    return step


def test_measuring_again_replaces_the_row_of_that_step_and_split(tmp_path):
    step = tf.Variable(5)
    log = MetricsLog(str(tmp_path), step)
    log.add("heldout", {"loss": 1.0})
    step.assign(9)
    log.add("train", {"loss": 2.0})
    log.add("heldout", {"loss": 3.0})
    for loss in (4.0, 5.0):  # two more processes
        MetricsLog(str(tmp_path), step).add("heldout", {"loss": loss})
    assert rows(tmp_path) == [(5, "heldout", 1.0), (9, "train", 2.0), (9, "heldout", 5.0)]


def test_rows_after_the_last_checkpoint_and_half_rows_are_dropped(tmp_path):
    log_losses(tmp_path, 2)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 1, "spl')
    MetricsLog(str(tmp_path), tf.Variable(1))
    assert rows(tmp_path) == [(1, "train", 1.0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "train"]


@pytest.mark.parametrize("damage", ["deleted", "cut", "garbled", "a text", "deep"])
def test_damaged_metrics_are_named_and_do_not_stop_a_run(tmp_path, capsys, damage):
    step, path = log_losses(tmp_path, 4), tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    if damage == "deleted":
        path.unlink()
    else:
        broken = {"garbled": b"\xff", "a text": b'"step": 2, "x": "y"', "deep": b"[" * 200_000}
        changed = whole.replace(b'"step": 2', broken.get(damage, b""))
        path.write_bytes(whole[:-20] if damage == "cut" else changed)
    kept = {"deleted": [], "cut": [1.0, 2.0, 3.0]}.get(damage, [1.0, 3.0, 4.0])
    assert not capsys.readouterr().err
    MetricsLog(str(tmp_path), step, begins=False)
    assert [loss for *_, loss in rows(tmp_path)] == kept
    assert str(path) in capsys.readouterr().err
    assert (tmp_path / "metrics.jsonl.damaged").exists() == (damage not in ("deleted", "cut"))


def test_events_that_cannot_be_written_end_a_run_with_a_sentence(tmp_path):
    (tmp_path / "train").write_text("a file")
    with pytest.raises(TrainingStopped):
        MetricsLog(str(tmp_path), tf.Variable(1)).add("train", {"loss": 1.0})


def test_auc_is_scikit_learns():
    rng = np.random.default_rng(0)
    labels = (rng.random([8, 500]) < 0.13).astype(np.int32)
    probabilities = 1 / (1 + np.exp(-(rng.normal(size=labels.shape) + 1.2 * labels - 2)))
    weights = (rng.random(labels.shape) < 0.7).astype(np.int32)
    sums = metrics.auc(tf.constant(probabilities, tf.float32), labels, weights)
    kept = weights > 0
    expected = roc_auc_score(labels[kept], probabilities[kept])
    assert 0.7 < expected < 0.9
    np.testing.assert_allclose(metrics.summarize({"auc": sums})["auc"], expected, atol=2e-4)

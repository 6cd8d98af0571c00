"""`metrics.jsonl`: every row once, whatever was killed or measured again."""

import pytest
import tensorflow as tf

from convbert.common.errors import TrainingStopped
from convbert.training.monitoring import MetricsLog, read_metrics


def rows(folder):
    return [(r["step"], r["split"], r["loss"]) for r in read_metrics(str(folder))]


def test_measuring_again_replaces_the_row_of_that_step_and_split(tmp_path):
    step = tf.Variable(5)
    log = MetricsLog(str(tmp_path), step)
    log.action("heldout")({"loss": 1.0})
    step.assign(9)
    log.action("train")({"loss": 2.0})
    log.action("heldout")({"loss": 3.0})
    for loss in (4.0, 5.0):  # two more processes
        MetricsLog(str(tmp_path), step).action("heldout")({"loss": loss})
    assert rows(tmp_path) == [(5, "heldout", 1.0), (9, "train", 2.0), (9, "heldout", 5.0)]


def test_rows_after_the_last_checkpoint_and_half_rows_are_dropped(tmp_path):
    step = tf.Variable(1)
    log = MetricsLog(str(tmp_path), step)
    log.action("train")({"loss": 1.0})
    step.assign(2)
    log.action("train")({"loss": 2.0})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 1, "spl')
    MetricsLog(str(tmp_path), tf.Variable(1))
    assert rows(tmp_path) == [(1, "train", 1.0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "train"]


@pytest.mark.parametrize("damage", ["deleted", "cut", "garbled", "a text", "deep"])
def test_damaged_metrics_are_named_and_do_not_stop_a_run(tmp_path, capsys, damage):
    step, path = tf.Variable(0), tmp_path / "metrics.jsonl"
    log = MetricsLog(str(tmp_path), step)
    for number in range(1, 5):
        step.assign(number)
        log.action("train")({"loss": float(number)})
    whole = path.read_bytes()
    if damage == "deleted":
        path.unlink()
    else:
        broken = {"garbled": b"\xff", "a text": b'"step": 2, "x": "y"', "deep": b"[" * 200_000}
        changed = whole.replace(b'"step": 2', broken.get(damage, b""))
        path.write_bytes(whole[:-20] if damage == "cut" else changed)
    kept = {"deleted": [], "cut": [1.0, 2.0, 3.0]}.get(damage, [1.0, 3.0, 4.0])
    assert not capsys.readouterr().err
    MetricsLog(str(tmp_path), step, resumed=True)
    assert [loss for *_, loss in rows(tmp_path)] == kept
    assert str(path) in capsys.readouterr().err
    assert (tmp_path / "metrics.jsonl.damaged").exists() == (damage not in ("deleted", "cut"))


def test_events_that_cannot_be_written_end_a_run_with_a_sentence(tmp_path):
    (tmp_path / "train").write_text("a file")
    with pytest.raises(TrainingStopped):
        MetricsLog(str(tmp_path), tf.Variable(1)).action("train")({"loss": 1.0})

"""Monitoring of a run: progress bar, `metrics.jsonl`, TensorBoard events."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tqdm

from convbert.common import files, storage
from convbert.common.errors import TrainingStopped, reason, warn
from convbert.training import workers

METRICS_FILE = "metrics.jsonl"
EVENT_FOLDERS = ("train", "dev", "heldout")  # one per split
NO_METRICS = ("step", "split", "time", "data_dir")


class MetricsLog:
    """Appends one JSON object per line to `metrics.jsonl` and its values to TensorBoard's events.

    A row has step, split, time, and the metrics. It replaces a row of the same step, split and
    data, as when the evaluation of a finished run is repeated.

    Args:
        step: the training step. Drops rows of later steps, which a killed run wrote after its last
            checkpoint and which will be written again.
        begins: whether training begins at the step, so that all rows are a killed start's, or
            resumes, where a warning names missing rows; None without training.
    """

    def __init__(self, model_dir: str, step: tf.Variable, *, begins: bool | None = None):
        self._model_dir, self._step = model_dir, step
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._path = os.path.join(model_dir, METRICS_FILE)
        rows, damaged = _read_lines(model_dir)
        now = int(step.numpy())
        kept = [row for row in rows if row["step"] <= now and not begins]
        if damaged:
            aside = f"{self._path}.damaged"
            files.append_text(aside, "".join(f"{line!r}\n" for line in damaged))
            warn(f"{self._path}: {len(damaged)} damaged lines were moved to {aside}")
        last = max((row["step"] for row in kept), default=0)
        if begins is False and last < now and workers.is_chief():  # other workers have no file
            warn(f"{self._path}: the rows of steps {last + 1} to {now} are missing")
        self._logged = set(map(_place, kept))
        self._rewrite(kept)

    def has(self, split: str) -> bool:
        """Returns True if there is a row for `split` at the current step."""
        return _place({"step": int(self._step.numpy()), "split": split}) in self._logged

    def _rewrite(self, rows: list[dict]) -> None:
        files.write_text(self._path, "".join(json.dumps(row) + "\n" for row in rows))

    def add(
        self, split: str, values: Mapping[str, float | None], data_dir: str | None = None
    ) -> None:
        """Logs the metrics of a split at the current step; `data_dir` is that of other data."""
        of = {"split": split} | ({"data_dir": data_dir} if data_dir else {})
        row = {"step": int(self._step.numpy()), **of, "time": round(time.time(), 3), **values}
        if _place(row) in self._logged:
            rows = read_metrics(self._model_dir)
            self._rewrite([*(old for old in rows if _place(old) != _place(row)), row])
        else:
            self._logged.add(_place(row))
            files.append_text(self._path, json.dumps(row) + "\n")
        self._add_events(row)

    def _add_events(self, row: dict) -> None:
        """Writes a row's metrics other than None as events, for the model's own data.

        After a kill, steps are written again, with the same values on a CPU.
        """
        if (split := row["split"]) not in EVENT_FOLDERS:
            return
        try:
            if split not in self._writers:
                folder = os.path.join(self._model_dir, split)
                self._writers[split] = tf.summary.create_file_writer(folder)
            # Arrays, as TensorFlow keeps every Python number that becomes a tensor.
            with self._writers[split].as_default(step=np.asarray(row["step"], np.int64)):
                for name, value in row.items():
                    if name not in NO_METRICS and value is not None:
                        tf.summary.scalar(name, np.asarray(value, np.float32))
            self._writers[split].flush()
        except tf.errors.OpError as error:
            said = f"TensorBoard's events cannot be written ({reason(error)})"
            raise TrainingStopped(f"{self._model_dir}: {said}") from error


def _place(row: dict) -> tuple:
    """Returns the key of a row, which is unique in the file."""
    return row["step"], row["split"], row.get("data_dir")


def read_metrics(model_dir: str) -> list[dict]:
    """Returns the rows of `metrics.jsonl`, without damaged lines."""
    return _read_lines(model_dir)[0]


def _read_lines(model_dir: str) -> tuple[list[dict], list[bytes]]:
    """Returns rows and damaged lines; drops an unfinished last line of a killed run."""
    rows, damaged = [], []
    try:
        with storage.open(os.path.join(model_dir, METRICS_FILE), "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        lines = []
    for line in lines:
        try:
            row = json.loads(line)
            row = {**row, "step": int(row["step"]), "split": str(row["split"])}
            metrics = (value for name, value in row.items() if name not in ("split", "data_dir"))
            if not all(value is None or isinstance(value, (int, float)) for value in metrics):
                raise ValueError("a metric is not a number")
            rows.append(row)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            damaged.append(line)
    return rows, damaged


class ProgressBar:
    """Shows a live bar: step, metrics, examples per second and ETA.

    `names` are labels of the metrics to show, by name; absent ones are left out.
    """

    def __init__(self, total_steps: int, step: tf.Variable, batch_size: int, names: dict[str, str]):
        self._step, self._batch_size, self._names = step, batch_size, names
        self._bar = tqdm.tqdm(
            total=total_steps,
            initial=int(step.numpy()),
            disable=not workers.is_chief(),
            file=sys.stderr,
            mininterval=0.5 if sys.stderr.isatty() else 15,  # keeps log files short
            dynamic_ncols=True,
            bar_format="{percentage:3.0f}%|{bar:20}| step {n_fmt}/{total_fmt}{postfix}"
            " [{elapsed}, ETA {remaining}]",
        )
        self._time = time.monotonic()

    def __call__(self, values: dict[str, float]) -> None:
        now, done = time.monotonic(), int(self._step.numpy()) - self._bar.n
        shown = {label: values[name] for name, label in self._names.items() if name in values}
        postfix = [f"{label} {value:.3f}" for label, value in shown.items()]
        rate = max(done, 0) * self._batch_size / (now - self._time)  # negative after a rollback
        postfix.append(f"{rate:.0f} examples/s")
        self._bar.set_postfix_str(", ".join(postfix), refresh=False)
        self._bar.update(done)
        self._time = now

    def close(self) -> None:
        """Draws the bar a last time."""
        self._bar.close()

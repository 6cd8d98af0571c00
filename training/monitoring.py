"""Monitoring of a run: progress bar, `metrics.jsonl`, TensorBoard events, curves."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

import tensorflow as tf
import tqdm

from common import files, storage
from common.errors import TrainingStopped, reason, warn
from training import workers

METRICS_FILE = "metrics.jsonl"
CURVES_FILE = "curves.png"
EVENT_FOLDERS = ("train", "dev", "heldout")  # a split each
NO_METRICS = ("step", "split", "time", "data_dir")


class MetricsLog:
    """Appends one JSON object per line to `metrics.jsonl` and its values to TensorBoard's events.

    A row has step, split, time, and the metrics. It takes the place of one of the same step, split
    and data, which an evaluation of a finished run has when it is repeated.

    Args:
        step: the training step. Rows of later steps, which a killed run left behind its last
            checkpoint, are dropped, also from the events: they will be written again.
        resumed: whether training resumes; a warning says which rows are missing.
    """

    def __init__(self, model_dir: str, step: tf.Variable, *, resumed: bool = False):
        self._model_dir, self._step = model_dir, step
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._path = os.path.join(model_dir, METRICS_FILE)
        rows, damaged = _read_lines(model_dir)
        now = int(step.numpy())
        kept = [row for row in rows if row["step"] <= now]
        if damaged:
            aside = f"{self._path}.damaged"
            files.append_text(aside, "".join(f"{line!r}\n" for line in damaged))
            warn(f"{self._path}: {len(damaged)} damaged lines were moved to {aside}")
        last = max((row["step"] for row in kept), default=0)
        if resumed and last < now:
            warn(f"{self._path}: the rows of steps {last + 1} to {now} are missing, also in curves")
        if damaged or len(kept) < len(rows):
            self._replace_events(kept, *EVENT_FOLDERS)
        self._logged = set(map(_place, kept))
        self._rewrite(kept)

    def has(self, split: str) -> bool:
        """Returns True if there is a row of `split` at the current step."""
        return _place({"step": int(self._step.numpy()), "split": split}) in self._logged

    def _rewrite(self, rows: list[dict]) -> None:
        files.write_text(self._path, "".join(json.dumps(row) + "\n" for row in rows))

    def action(self, split: str, data_dir: str | None = None):
        """An orbit action that logs what it is given as metrics of `split`.

        Args:
            data_dir: what data, if it is not the model's own.
        """
        of = {"split": split} | ({"data_dir": data_dir} if data_dir else {})

        def log(values: dict[str, float]) -> None:
            step = int(self._step.numpy())
            row = {"step": step, **of, "time": round(time.time(), 3), **values}
            if _place(row) in self._logged:
                rows = read_metrics(self._model_dir)
                rows = [*(other for other in rows if _place(other) != _place(row)), row]
                self._rewrite(rows)
                self._replace_events(rows, split)
                return
            self._logged.add(_place(row))
            files.append_text(self._path, json.dumps(row) + "\n")
            self._add_events(row)

        return log

    def _replace_events(self, rows: Sequence[dict], *splits: str) -> None:
        """Begins these splits of TensorBoard's events anew, so that each step is there once."""
        for split in splits:
            self._writers.pop(split, None)
            storage.rmtree(os.path.join(self._model_dir, split), ignore_errors=True)
        self._add_events(*(row for row in rows if row["split"] in splits))

    def _add_events(self, *rows: dict) -> None:
        """Writes the metrics of rows that are not None, of the model's own data."""
        try:
            for row in rows:
                if row["split"] in EVENT_FOLDERS:
                    self._write_event(row)
            for writer in self._writers.values():
                writer.flush()
        except tf.errors.OpError as error:
            raise TrainingStopped(
                f"{self._model_dir}: TensorBoard's events cannot be written ({reason(error)})"
            ) from error

    def _write_event(self, row: dict) -> None:
        split = row["split"]
        if split not in self._writers:
            folder = os.path.join(self._model_dir, split)
            self._writers[split] = tf.summary.create_file_writer(folder)
        metadata = {"plugin_data": {"plugin_name": "scalars"}}
        values = [
            {"tag": name, "tensor": tf.make_tensor_proto(value, tf.float32), "metadata": metadata}
            for name, value in row.items()
            if name not in NO_METRICS and value is not None
        ]
        # As `tf.summary.scalar` of each, which would take a minute for 10,000 rows.
        with self._writers[split].as_default(step=row["step"]):
            summary = tf.compat.v1.Summary(value=values)
            tf.summary.experimental.write_raw_pb(summary.SerializeToString())


def _place(row: dict) -> tuple:
    """Returns what there is one row of."""
    return row["step"], row["split"], row.get("data_dir")


def read_metrics(model_dir: str) -> list[dict]:
    """The rows of `metrics.jsonl`, without damaged lines."""
    return _read_lines(model_dir)[0]


def _read_lines(model_dir: str) -> tuple[list[dict], list[bytes]]:
    """Rows and damaged lines; a last line that a killed run left unfinished is dropped."""
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
                raise ValueError("a metric is no number")
            rows.append(row)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            damaged.append(line)
    return rows, damaged


def live_bar(total: int | None, description: str, initial: int = 0) -> tqdm.tqdm:
    """A bar of steps on standard error: a description in tqdm's format, a postfix, times."""
    return tqdm.tqdm(
        total=total,
        initial=initial,
        disable=not workers.is_chief(),
        file=sys.stderr,
        mininterval=0.5 if sys.stderr.isatty() else 15,  # a log file wants few lines
        dynamic_ncols=True,
        bar_format=f"{{percentage:3.0f}}%|{{bar:20}}| {description}"
        "{postfix} [{elapsed}, ETA {remaining}]",
    )


class ProgressBar:
    """An orbit action: a live bar with step, chosen metrics, examples per second and ETA.

    Args:
        names: metrics to show, as {name: label}; those absent are left out.
    """

    def __init__(self, total_steps: int, step: tf.Variable, batch_size: int, names: dict[str, str]):
        self._step, self._batch_size, self._names = step, batch_size, names
        self._bar = live_bar(total_steps, "step {n_fmt}/{total_fmt}", int(step.numpy()))
        self._time = time.monotonic()

    def __call__(self, values: dict[str, float]) -> None:
        now, done = time.monotonic(), int(self._step.numpy()) - self._bar.n
        shown = {label: values[name] for name, label in self._names.items() if name in values}
        postfix = [f"{label} {value:.3f}" for label, value in shown.items()]
        postfix.append(f"{done * self._batch_size / (now - self._time):.0f} examples/s")
        self._bar.set_postfix_str(", ".join(postfix), refresh=False)
        self._bar.update(done)
        self._time = now

    def close(self) -> None:
        """Draws the bar a last time."""
        self._bar.close()


def plot_curves(model_dir: str, names: Sequence[str]) -> str | None:
    """Draws `curves.png` from `metrics.jsonl`: one panel per metric, a line for each split.

    Returns its path, or None when none of the metrics was logged.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = read_metrics(model_dir)
    names = [name for name in names if any(name in row for row in rows)]
    if not names:
        return None
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(4.5 * columns, 3.2 * lines), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes.flat, names):
        for split, style in (("train", "-"), ("heldout", "o-"), ("dev", "o-")):
            own = [row for row in rows if row["split"] == split]
            points = [(row["step"], row[name]) for row in own if row.get(name) is not None]
            if points:
                axis.plot(*zip(*points), style, label=split, markersize=4, linewidth=1.2)
        axis.set(title=name, xlabel="step")
        axis.grid(alpha=0.3)
        axis.legend()
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    path = os.path.join(model_dir, CURVES_FILE)
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    pyplot.close(figure)
    return path

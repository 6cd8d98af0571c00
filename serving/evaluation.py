"""Scores of models that answer, on labelled examples."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from errors import InputError
from files import write_bytes
from finetune import declaration
from finetune.frames import json_lines
from finetune.hparams import FinetuningHParams
from finetune.kinds.predicted import Predicted
from finetune.task import Task
from finetune.task_files import read_split
from serving.load import PRETRAINING
from serving.records import WORD_LIST
from settings import field_names

if TYPE_CHECKING:
    from serving.model import Model

_SPLIT = "evaluated"
_SHARE = 95.0  # of an interval, in percent


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What a model scores on labelled examples.

    Attributes:
        scores: by metric, times 100 as in `report.md`; errors (mae, rmse) in the unit of the
            labels; None where undefined.
        intervals: of the metrics, the ends of their 95 % bootstrap intervals (percentiles); {}
            where none were asked for.
        predicted: examples and answers.
    """

    scores: dict[str, float | None]
    intervals: dict[str, tuple[float, float]]
    predicted: Predicted

    def by_label(self) -> pd.DataFrame:
        """A row for each label, tag or type of entity: precision, recall, f1, support."""
        found = self.predicted.task.plugin.by_label(self.predicted)
        return pd.DataFrame.from_dict(found, orient="index")

    def __repr__(self) -> str:
        return f"<{len(self.predicted.examples)} examples: {self.scores}>"


def evaluate(
    model: Model,
    data: str | os.PathLike | pd.DataFrame,
    *,
    metrics: list[str] | None = None,
    bootstrap: int = 0,
    progress: bool | None = None,
) -> Evaluation:
    """Asks a model about labelled examples, and scores its answers by the metrics of its task.

    Args:
        model: fine-tuned.
        data: a file in the format of the task's development files, or of another that its
            extension says; or a DataFrame. Labels are needed, also of a test file.
        metrics: names of metrics, instead of the task's.
        bootstrap: how often examples are drawn with replacement for the intervals; 0: none.
        progress: see `Model`.

    Raises:
        InputError: the model has no task, or the data is not as its declaration says.
    """
    task, examples = _examples(model, data, metrics)
    kind = task.plugin
    signature = WORD_LIST if WORD_LIST in model.signatures else "serving_default"
    requests = [kind.request(task, example) for example in examples]
    answers = model.ask(signature, requests, progress=progress)
    found = [kind.answer_of(task, dataclasses.asdict(answer)) for answer in answers]
    outputs = {"logits": answers.scores} if kind.name == "classification" else {}
    predicted = Predicted(task, examples, found, _hparams(model, task), outputs)
    scores = kind.score(predicted)
    return Evaluation(scores, _intervals(predicted, bootstrap), predicted)


def _examples(
    model: Model, data: str | os.PathLike | pd.DataFrame, metrics: list[str] | None
) -> tuple[Task, list]:
    """The model's task with these metrics, and the examples."""
    if model.kind == PRETRAINING:
        raise InputError(f"evaluate needs a model fine-tuned on a task. This is of {model.kind}")
    task = declaration.parse({**model.description["task"], "folders": []}, "the model's task")
    if metrics is not None:
        task = dataclasses.replace(task, metrics=tuple(metrics))
    task.plugin.check_metrics(task)
    if not isinstance(data, pd.DataFrame):
        return task, _read(task, os.path.abspath(os.fspath(data)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.jsonl")
        write_bytes(path, json_lines("the table", data, _named(task, data), task.plugin.name))
        return task, _read(task, path)


def _read(task: Task, path: str) -> list:
    """The labelled examples of a file."""
    dev, (folder, name) = task.dev[0], os.path.split(path)
    formats = {end: name for name, end in task.plugin.formats.items() if end}
    own = dataclasses.replace(
        task,
        format=formats.get(os.path.splitext(path)[1].lower(), task.format),
        files={task.train: task.files[task.train], _SPLIT: name},
        folders=(folder,),
        dev=(_SPLIT,),
        test=(),
        delimiter=None,
        per_split={_SPLIT: task.per_split[dev]} if dev in task.per_split else {},
    )
    return read_split(own, "", _SPLIT)


def _named(task: Task, table: pd.DataFrame) -> dict[str, Any]:
    """Role -> column, those of the task's declaration."""
    columns = {r: list(c) if isinstance(c, tuple) else c for r, c in task.columns.items()}
    if columns.get("id") not in table.columns:
        columns.pop("id", None)
    if any(isinstance(name, int) for name in columns.values()):
        raise InputError(
            f"the task {task.name} has columns by number, so a table has none for it; give a file"
        )
    return columns


def _hparams(model: Model, task: Task) -> FinetuningHParams:
    """The hyper-parameters that scores depend on, as they were in training."""
    saved = model.description["training"]["hparams"]
    own = task.plugin.hparams
    return own(**{name: saved[name] for name in field_names(own) if name in saved})


def _intervals(predicted: Predicted, bootstrap: int) -> dict[str, tuple[float, float]]:
    """The percentile intervals of scores over draws of as many examples with replacement."""
    draw, found = np.random.default_rng(0), {}
    for _ in range(bootstrap):
        numbers = draw.integers(0, len(predicted.examples), len(predicted.examples))
        drawn = dataclasses.replace(
            predicted,
            examples=[predicted.examples[i] for i in numbers],
            answers=[predicted.answers[i] for i in numbers],
            outputs={name: value[numbers] for name, value in predicted.outputs.items()},
        )
        for name, score in predicted.task.plugin.score(drawn).items():
            if score is not None:
                found.setdefault(name, []).append(score)
    ends = [(100.0 - _SHARE) / 2.0, (100.0 + _SHARE) / 2.0]
    return {name: tuple(np.percentile(scores, ends).tolist()) for name, scores in found.items()}

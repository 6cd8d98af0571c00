"""Scores of models that answer, on labelled examples."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from common import storage
from common.errors import InputError
from common.files import as_path
from finetune import declaration
from finetune.declaration import Task
from finetune.kinds.predicted import Predicted
from finetune.readers.tables import Table
from finetune.task_files import Data, read_split
from serving.client import progress_bar
from serving.load import PRETRAINING
from serving.records import WORD_LIST

if TYPE_CHECKING:
    from serving.model import Model

_SPLIT = "evaluated"
_TABLES = ("tsv", "csv", "jsonl")  # formats that have named columns
_INTERVAL = (2.5, 97.5)  # percentiles of scores over draws


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A model's scores on labelled examples.

    Attributes:
        scores: by metric, times 100 as in `report.md`; None if undefined.
        intervals: by metric, the ends of the 95 % bootstrap interval (percentiles), if requested;
            without metrics that are undefined in more than 5 % of the draws.
        predicted: examples and answers.
    """

    scores: dict[str, float | None]
    intervals: dict[str, tuple[float, float]]
    predicted: Predicted

    def by_label(self) -> pd.DataFrame:
        """A row for each type of entity: precision, recall, f1, support."""
        found = self.predicted.task.plugin.by_label(self.predicted)
        return pd.DataFrame.from_dict(found, orient="index")

    def __repr__(self) -> str:
        return f"<{len(self.predicted.examples)} examples: {self.scores}>"


def evaluate(
    model: Model,
    data: str | os.PathLike | pd.DataFrame,
    *,
    metrics: Sequence[str] | None = None,
    bootstrap: int = 0,
    progress: bool | None = None,
) -> Evaluation:
    """Asks a model about labelled examples, and scores its answers by the metrics of its task.

    Args:
        data: a file in the format of the task's development files, or of another that its
            extension says; or a DataFrame. Labels are needed, also of a test file.
        metrics: names of metrics, instead of the task's.
        bootstrap: how often examples are drawn with replacement for the intervals; 0: none.

    Raises:
        InputError: the model has no task, or the data is not as its declaration says.
        KeyError: a table without a column.
    """
    if not isinstance(bootstrap, int) or bootstrap < 0:
        raise InputError(f"`bootstrap` should be a number of draws. Received: {bootstrap!r}")
    task, examples = _examples(model, data)
    wanted = [metrics] if isinstance(metrics, str) else metrics
    if wanted is not None:  # behind the task's headline, of which more is better
        names = dict.fromkeys((task.metrics[0], *wanted))
        task = dataclasses.replace(task, metrics=tuple(names))
    kind = task.plugin
    signature = WORD_LIST if WORD_LIST in model.signatures else "serving_default"
    requests = [kind.request(task, example) for example in examples]
    answers = model.ask(signature, requests, progress=progress)
    found = [kind.answer_of(task.labels, vars(answer)) for answer in answers]
    scores = answers.columns.get("scores")  # logits of the labels; lists if of options
    outputs = {"logits": scores} if isinstance(scores, np.ndarray) else {}
    predicted = Predicted(task, examples, found, outputs)
    scores = kind.score(predicted)
    intervals = _intervals(predicted, bootstrap, progress)

    def chosen(by_metric: dict[str, Any]) -> dict[str, Any]:
        return {n: v for n, v in by_metric.items() if wanted is None or n in wanted}

    return Evaluation(chosen(scores), chosen(intervals), predicted)


def _examples(model: Model, data: str | os.PathLike | pd.DataFrame) -> tuple[Task, list]:
    """The model's task, and the examples, which are read as its development split."""
    if model.kind == PRETRAINING:
        raise InputError(f"evaluate needs a model fine-tuned on a task. This is of {model.kind}")
    task = declaration.parse({**model.description["task"], "folders": []}, "the model's task")
    dev, folder, name = task.dev[0], "", ""
    where: Data = ""
    columns = dict(task.columns_of(dev))
    if isinstance(data, pd.DataFrame):
        where = {_SPLIT: Table("`table`", data.reset_index(drop=True))}
        file_format = "jsonl"
        if columns.get("id") not in data.columns:
            columns.pop("id", None)
    else:
        path = os.path.abspath(as_path("data", data))
        if not storage.exists(path):
            raise InputError(f"{path}: there is no such file")
        folder, name = os.path.split(path)
        formats = {end: known for known, end in task.plugin.formats.items() if end}
        file_format = formats.get(os.path.splitext(path)[1].lower(), task.format)
    own: dict[str, Any]
    own = {"files": {task.train: task.files[task.train], _SPLIT: name}, "folders": (folder,)}
    if file_format == task.format and not where:
        own["per_split"] = {_SPLIT: task.per_split[dev]} if dev in task.per_split else {}
    else:
        named = all(isinstance(name, str) for name in columns.values())
        if not (named and {task.format, file_format} <= {*_TABLES}):
            raise InputError(
                f"{task.name}: the task's files are of the format {task.format}; give such a file"
            )
        own |= {"format": file_format, "columns": columns, "per_split": {}}
    changed = dataclasses.replace(task, dev=(_SPLIT,), test=(), **own)
    return task, read_split(changed, where, _SPLIT)


def _intervals(
    predicted: Predicted, bootstrap: int, progress: bool | None
) -> dict[str, tuple[float, float]]:
    """The percentile intervals of scores over draws of as many examples with replacement.

    Of a score that is undefined in more than one of twenty draws there is none.
    """
    found: dict[str, list[float]] = {}
    drawn = _draws(predicted, bootstrap)
    for _ in progress_bar(range(bootstrap), progress, " draws"):
        for name, score in predicted.task.plugin.score(next(drawn)).items():
            if score is not None:
                found.setdefault(name, []).append(score)
    return {
        name: tuple(np.percentile(scores, _INTERVAL).tolist())
        for name, scores in found.items()
        if len(scores) >= 0.95 * bootstrap
    }


def _draws(predicted: Predicted, count: int) -> Iterator[Predicted]:
    """Yields as many examples, drawn with replacement, with new ids; always the same ones."""
    draw, n = np.random.default_rng(0), len(predicted.examples)
    for _ in range(count):
        numbers = draw.integers(0, n, n)
        drawn = enumerate(predicted.examples[i] for i in numbers)
        yield dataclasses.replace(
            predicted,
            examples=[dataclasses.replace(example, id=str(place)) for place, example in drawn],
            answers=[predicted.answers[i] for i in numbers],
            outputs={  # those that have a value for each example
                name: value[numbers]
                for name, value in predicted.outputs.items()
                if np.shape(value)[:1] == (n,)
            },
        )

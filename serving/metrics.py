"""Evaluation of served models on labelled examples."""

from __future__ import annotations

import copy
import dataclasses
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from convbert.common import storage
from convbert.common.errors import InputError
from convbert.common.files import as_path
from convbert.finetune import declaration
from convbert.finetune.declaration import Task
from convbert.finetune.kinds.base import Predicted
from convbert.finetune.readers.tables import Table
from convbert.finetune.task_files import Data, read_split
from convbert.serving.load import PRETRAINING
from convbert.serving.records import WORD_LIST

if TYPE_CHECKING:
    from convbert.serving.model import Model

_SPLIT = "evaluated"
SIMILARITY = "similarity"  # a signature of models of vectors alone
_TABLES = ("tsv", "csv", "jsonl")  # formats with named columns


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A model's scores on labelled examples."""

    scores: dict[str, float | None]  # by metric, times 100 as in `report.md`; None if undefined
    predicted: Predicted  # examples and answers

    def by_label(self) -> pd.DataFrame:
        """Returns a row per entity type: precision, recall, f1, support."""
        found = self.predicted.task.plugin.by_label(self.predicted)
        return pd.DataFrame.from_dict(found, orient="index")

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Returns 95 % bootstrap intervals over examples, of Spearman's and Pearson's correlation.

        They are by metric, times 100, as `scores`; {} for a task with other metrics. Samples of one
        value have no correlation and do not count.
        """
        task, found = self.predicted.task, {}
        pairs = self.predicted.answers, [task.plugin.gold(task, x) for x in self.predicted.examples]
        options: dict[str, Any] = {"paired": True, "vectorized": False, "n_resamples": 1000}
        options |= {"method": "percentile", "rng": 0, "batch": 4}
        for name, of in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
            if self.scores.get(name) is not None:
                with warnings.catch_warnings():  # of such samples
                    warnings.simplefilter("ignore")
                    drawn = stats.bootstrap(pairs, lambda a, b, of=of: of(a, b)[0], **options)
                ends = np.nanpercentile(drawn.bootstrap_distribution, (2.5, 97.5))
                found[name] = tuple((100.0 * ends).tolist())
        return found

    def __repr__(self) -> str:
        return f"<{len(self.predicted.examples)} examples: {self.scores}>"


def evaluate(
    model: Model,
    data: str | os.PathLike | pd.DataFrame,
    *,
    metrics: Sequence[str] | None = None,
    progress: bool | None = None,
) -> Evaluation:
    """Scores a model's answers to labelled examples by the metrics of its task.

    Args:
        data: a file in the format of the task's development files, or a DataFrame, with labels.
            CSV, TSV and JSON lines may replace each other, by the file's extension.
        metrics: names of metrics. Default: the task's.

    Raises:
        InputError: the model has no task, or the data does not match its declaration.
    """
    task, examples = _examples(model, data)
    wanted = [metrics] if isinstance(metrics, str) else metrics
    if wanted is not None:  # after the task's headline, where higher is better
        names = dict.fromkeys((task.metrics[0], *wanted))
        task = dataclasses.replace(task, metrics=tuple(names))
    kind = task.plugin
    requests = [kind.request(task, example) for example in examples]
    if SIMILARITY in model.signatures:
        texts = [text for request in requests for text in request.values()]
        vectors = model.embed(texts, progress=progress)
        outputs = {"embedding": vectors}
        found = np.sum(vectors[::2] * vectors[1::2], -1).tolist()
    else:
        signature = WORD_LIST if WORD_LIST in model.signatures else "serving_default"
        inputs = model.inputs(signature)  # by place, as the task's columns may have these names
        rows: list[Any] = [[request[name] for name in inputs] for request in requests]
        rows = rows if len(inputs) > 1 else [text for (text,) in rows]
        answers = model.ask(signature, rows, progress=progress)
        found = [kind.answer_of(task.labels, vars(answer)) for answer in answers]
        scores = answers.columns.get("scores")  # logits of the labels, or lists for options
        outputs = {"logits": scores} if isinstance(scores, np.ndarray) else {}
    predicted = Predicted(task, examples, found, outputs)
    by_metric = kind.score(predicted).items()
    return Evaluation({n: v for n, v in by_metric if wanted is None or n in wanted}, predicted)


def _examples(model: Model, data: str | os.PathLike | pd.DataFrame) -> tuple[Task, list]:
    """Returns the model's task and the examples, read as its development split."""
    if model.kind == PRETRAINING:
        raise InputError(f"evaluate needs a model fine-tuned on a task. Received: {model.kind}")
    described = copy.deepcopy(model.description["task"])
    if SIMILARITY in model.signatures:  # negatives are for training alone
        for layout in (described, *described["per_split"].values()):
            layout.get("columns", {}).pop("negative", None)
    task = declaration.parse({**described, "folders": []}, "the model's task")
    dev = task.dev[0]
    where: Data = ""
    changed: dict[str, Any] = {"dev": (_SPLIT,), "test": ()}
    if isinstance(data, pd.DataFrame):
        columns = dict(task.columns_of(dev))
        if columns.get("id") not in data.columns:
            columns.pop("id", None)
        if task.format not in _TABLES:
            raise InputError(f"{task.name}: give a file of the format {task.format}")
        where, name = {_SPLIT: Table("`table`", data.reset_index(drop=True))}, ""
        changed |= {"format": "jsonl", "header": True, "columns": columns, "per_split": {}}
    else:
        path = storage.abspath(as_path("data", data))
        if not storage.exists(path):
            raise InputError(f"{path}: there is no such file")
        folder, name = os.path.split(path)
        files = task.files[dev]
        files = (files,) if isinstance(files, str) else files
        extension, *own = (os.path.splitext(file)[1][1:].lower() for file in (name, *files))
        if extension not in own and {task.format, extension} <= {*_TABLES}:
            changed |= {"format": extension, "header": task.header or extension == "jsonl"}
        changed["folders"] = (folder,)
        named = {task.train: task.train, dev: _SPLIT}
        changed["per_split"] = {named[n]: of for n, of in task.per_split.items() if n in named}
    changed["files"] = {task.train: task.files[task.train], _SPLIT: name}
    return task, read_split(dataclasses.replace(task, **changed), where, _SPLIT)

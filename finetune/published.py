"""Figures that the papers print: development sets' scores, parameters, training FLOPs.

`published.csv` holds one row per published model, with the document and table it is from. Only
printed figures are in it, none read off a plot. The models are pre-trained on far more text than
the quickstart's: `pretraining` says how much. `published_tasks.csv` holds figures of single tasks
outside of GLUE, of models of any kind.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
from typing import Any

from model.sizes import ALIASES

_TASKS = ("mnli", "qnli", "qqp", "rte", "sst", "mrpc", "cola", "sts", "race_middle")
_SETTINGS = ("num_train_steps", "max_seq_length", "train_batch_size", "vocab_size")
_SETTINGS += ("generator_hidden_size",)
_OBJECTIVES = {"RTD": "replaced_token_detection", "MLM": "masked_lm"}
# Table II of the ALE report; MRPC and QQP are by accuracy, as everywhere here.
_METRICS = {"ALE report, Table IV": {"sts": "pearson"}}


@dataclasses.dataclass(frozen=True)
class Published:
    """One row of a published table.

    Attributes:
        name: model, objective and data as the table prints them, where it prints FLOPs.
        size: the model's name in `model.sizes.SIZES`.
        source: document and table.
        pretraining: objective, amount of text or of FLOPs, updates, as far as the source tells.
        settings: hyper-parameters (see `pretrain.hparams`) that count the row's FLOPs.
        params: number of parameters; None where the source does not print it, as the next two.
        flops: training FLOPs.
        average: of the eight GLUE tasks as printed, times 100.
        scores: task (as in `finetune.glue`) -> headline score, times 100.
        statistic: what a score is of: median, mean or best of how many runs; "" where not printed.
        metrics: task -> metric, where the source uses another one than `finetune.glue`'s main one.
    """

    name: str
    size: str
    source: str = ""
    pretraining: str = ""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    params: float | None = None
    flops: float | None = None
    average: float | None = None
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    statistic: str = ""
    metrics: dict[str, str] = dataclasses.field(default_factory=dict)


def _published(cells: dict[str, str]) -> Published:
    """The row of a line of `published.csv`."""

    def numbers(*names: str) -> dict[str, float]:
        return {name: json.loads(cells[name]) for name in names if cells[name]}

    settings = {"model_size": cells["size"], **numbers(*_SETTINGS)}
    settings["objective"] = _OBJECTIVES[cells["objective"]]
    return Published(
        name=cells["name"],
        size=cells["size"],
        source=cells["source"],
        pretraining=f"{cells['objective']}, {cells['amount']}",
        settings=settings,
        scores=numbers(*_TASKS),
        statistic=cells["statistic"],
        metrics=_METRICS.get(cells["source"], {}),
        **numbers("params", "flops", "average"),
    )


with open(pathlib.Path(__file__).with_suffix(".csv"), encoding="utf-8", newline="") as _file:
    PUBLISHED = tuple(map(_published, csv.DictReader(_file)))


@dataclasses.dataclass(frozen=True)
class PublishedTask:
    """A published figure of one task.

    Attributes:
        task: as in `finetune.glue`.
        model: as the source has it.
        score: times 100.
        metric: which it is of.
        split: on what.
        statistic: of how many runs.
        source: document and table.
        note: how its data differ from ours.
    """

    task: str
    model: str
    score: float
    metric: str
    split: str
    statistic: str
    source: str
    note: str


with open(
    pathlib.Path(__file__).with_name("published_tasks.csv"), encoding="utf-8", newline=""
) as _file:
    PUBLISHED_TASKS = tuple(
        PublishedTask(**{**cells, "score": float(cells["score"])})
        for cells in csv.DictReader(_file)
    )


def published_rows(size: str | None) -> list[Published]:
    """The rows with an average of one size, by name or alias; none for None or an unknown size."""
    return [row for row in _of_size(size) if row.average is not None]


def published_score(size: str | None, task: str) -> tuple[float, Published] | None:
    """The first figure that was published for a size on a task, and its row; None without one."""
    for row in _of_size(size):
        if task in row.scores:
            return row.scores[task], row
    return None


def _of_size(size: str | None) -> list[Published]:
    return [row for row in PUBLISHED if row.size == ALIASES.get(size or "", size)]

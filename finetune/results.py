"""What finished runs measured: read from their folders, grouped by setting, summarised."""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import storage
from errors import InputError
from files import read_json
from finetune.glue import GLUE_TASKS
from training.model_directory import RESULT_FILE

# The papers average these, with equal weight: the eight tasks and metrics of Table II of the ALE
# report, but for STS-B ELECTRA's Spearman correlation instead of Pearson's.
AVERAGED_METRICS = dict.fromkeys(GLUE_TASKS, "accuracy")
AVERAGED_METRICS |= {"cola": "matthews_corrcoef", "sts": "spearman"}


@dataclasses.dataclass(frozen=True)
class Summary:
    """Statistics of one score over the runs of a setting, times 100 as the scores are.

    `standard_error` is of the mean (sample deviation / sqrt(runs)); None for a single run. An
    undefined score, such as the correlation of constant predictions, counts as 0, for that run
    predicts nothing. Where no run has a score, as with constant gold labels, all figures are None.
    """

    runs: int
    median: float | None = None
    mean: float | None = None
    standard_error: float | None = None
    best: float | None = None
    worst: float | None = None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Summary:
        """Summarises at least one value; higher ones are better, None is undefined."""
        n = len(values)
        if all(value is None for value in values):
            return cls(n)
        array = np.asarray([value or 0.0 for value in values], np.float64)
        error = float(array.std(ddof=1) / n**0.5) if n > 1 else None
        median, mean = float(np.median(array)), float(array.mean())
        return cls(n, median, mean, error, float(array.max()), float(array.min()))


@dataclasses.dataclass(frozen=True)
class Group:
    """The runs of one setting of a task, which differ in their seeds alone."""

    task: str
    model: str | None  # name of the model directory
    init: str  # "pretrained" or "random"
    setting: dict[str, Any]  # the hyper-parameters that a sweep varies
    results: tuple[dict[str, Any], ...]  # contents of `result.json`, by trial

    @property
    def split(self) -> str:
        """The headline split: the first that was scored."""
        return headline(self.results[0])[0]

    @property
    def metric(self) -> str:
        """The headline metric."""
        return headline(self.results[0])[1]

    @property
    def headline(self) -> Summary:
        """The headline metric on the headline split."""
        return self.summary(self.split, self.metric)

    def values(self, split: str, metric: str) -> list[float | None]:
        """One score of every run that has it; None where it is undefined."""
        found = (result["scores"].get(split, {}) for result in self.results)
        return [scores[metric] for scores in found if metric in scores]

    def summary(self, split: str, metric: str) -> Summary:
        """Statistics of one score; at least one run must have it."""
        return Summary.of(self.values(split, metric))

    def scored(self) -> list[tuple[str, str]]:
        """Every (split, metric), those of the headline first."""
        scores = self.results[0]["scores"]
        pairs = [(split, metric) for split, values in scores.items() for metric in values]
        return sorted(pairs, key=lambda pair: (pair[0] != self.split, pair[1] != self.metric))


def headline(result: dict[str, Any]) -> tuple[str, str]:
    """The split and the metric of a run's headline score."""
    return next(iter(result["scores"])), result["main_metric"]


def headline_score(result: dict[str, Any]) -> float | None:
    """A run's headline score; None where it is undefined."""
    split, metric = headline(result)
    return result["scores"][split][metric]


def described_score(result: dict[str, Any]) -> str:
    """A run's headline score, such as "dev accuracy 91.2"."""
    score = headline_score(result)
    return f"{' '.join(headline(result))} {'undefined' if score is None else f'{score:.1f}'}"


def rank(result: dict[str, Any]) -> tuple:
    """What sorts runs of one task: by headline score, an undefined one lowest.

    Where scores are equal, a run that is not collapsed is higher, then a pre-trained one.
    """
    score = _or_lowest(headline_score(result))
    return score, not result.get("collapsed"), result["init"] == "pretrained"


def _or_lowest(score: float | None) -> float:
    return -math.inf if score is None else score


def collapse(result: dict[str, Any]) -> str:
    """Why a run counts as collapsed, by split; "" where it does not."""
    return "; ".join(f"{split}: {why}" for split, why in (result.get("collapsed") or {}).items())


def undefined(result: dict[str, Any]) -> str:
    """A run's undefined scores with the reason, such as "dev spearman: every gold label is 3"."""
    return "; ".join(
        f"{split} {', '.join(reasons)}: {next(iter(reasons.values()))}"
        for split, reasons in result.get("undefined", {}).items()
    )


def read_results(output_dir: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Reads all runs below an output folder, or a folder of such folders.

    Returns:
        The contents of every `result.json`, each with its folder under "folder", by folder; and
        the folders of runs that were begun but have none.

    Raises:
        InputError: there is no finished run, or a file is no JSON object.
    """
    results, unfinished = [], []
    for folder, subfolders, files in storage.walk(output_dir):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if RESULT_FILE in files:
            results.append({**read_json(os.path.join(folder, RESULT_FILE)), "folder": folder})
            subfolders.clear()
        elif os.path.basename(folder).startswith("trial_"):
            unfinished.append(folder)
            subfolders.clear()
    if not results:
        raise InputError(
            f"{output_dir}: should hold finished runs of run_finetuning.py, TASK/SETTING/trial_N/"
            f"{RESULT_FILE}. Received: {len(unfinished)} unfinished runs"
        )
    return results, unfinished


def group_results(results: Iterable[dict[str, Any]]) -> list[Group]:
    """Groups runs by task, model, init and setting; GLUE's tasks first, in their usual order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        key = [result.get(name) for name in ("task", "model", "init", "setting")]
        groups.setdefault(json.dumps(key), []).append(result)
    trial = operator.itemgetter("trial")
    found = [
        Group(*json.loads(key), tuple(sorted(runs, key=trial))) for key, runs in groups.items()
    ]
    order = {task: index for index, task in enumerate(GLUE_TASKS)}
    found.sort(key=lambda g: (order.get(g.task, len(order)), g.task, g.model or "", g.init))
    return found


def best_settings(groups: Sequence[Group]) -> list[Group]:
    """For each task, model and init the setting of highest headline median, as the papers choose.

    The first one where several are equal.
    """
    best: dict[tuple, Group] = {}
    for group in by_median(groups):
        best.setdefault((group.task, group.model, group.init), group)
    return [group for group in groups if group in best.values()]


def by_median(groups: Iterable[Group]) -> list[Group]:
    """Groups by falling headline median, an undefined one last, else in their order."""
    return sorted(groups, key=lambda group: _or_lowest(group.headline.median), reverse=True)


def glue_average(
    best: Sequence[Group], statistic: str = "median", metrics: Mapping[str, str] = {}
) -> float | None:
    """The average over the eight tasks; None where one is missing or its score undefined.

    `best` are of one model and init, one of each task; `statistic` is an attribute of `Summary`;
    `metrics` are by task, where they are not those of `AVERAGED_METRICS`.
    """
    scores = {}
    for group in best:
        metric = {**AVERAGED_METRICS, **metrics}.get(group.task)
        if metric and group.values(group.split, metric):
            scores[group.task] = getattr(group.summary(group.split, metric), statistic)
    complete = all(scores.get(task) is not None for task in GLUE_TASKS)
    return float(np.mean(list(scores.values()))) if complete else None

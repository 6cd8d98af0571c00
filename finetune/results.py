"""Results of finished runs: reads them, groups them by setting, and chooses the best."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from convbert.common import storage
from convbert.common.errors import InputError, located, warn
from convbert.common.files import read_json
from convbert.common.settings import typed
from convbert.finetune.declaration import GLUE_TASKS
from convbert.training.run_record import CHECKPOINT_FOLDER, RESULT_FILE

# The papers' average: the eight tasks and metrics of Table II of the ALE report, except for STS-B:
# ELECTRA's Spearman correlation instead of Pearson's.
AVERAGED_METRICS = dict.fromkeys(GLUE_TASKS, "accuracy")
AVERAGED_METRICS |= {"cola": "matthews_corrcoef", "sts": "spearman"}


# What is read of every `result.json`.
_NEEDED = {"task": str, "init": str, "trial": int, "main_metric": str, "scores": dict[str, dict]}


def summarize(scores: Sequence[float | None]) -> dict[str, float]:
    """Returns `median`, `mean`, `best`, `worst`, and for several scores `standard_error`.

    An undefined score, such as the correlation of constant predictions, counts as 0; {} if all are.
    """
    if all(score is None for score in scores):
        return {}
    values = pd.Series([score or 0.0 for score in scores])
    found = values.agg(["median", "mean", "sem", "max", "min"]).dropna()
    names = {"sem": "standard_error", "max": "best", "min": "worst"}
    return found.rename(names).to_dict()


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """The runs of one setting of a task, which differ only in their seeds."""

    task: str
    model: str | None  # name of the model directory
    init: str  # "pretrained" or "random"
    setting: dict[str, Any]  # swept hyper-parameters
    results: tuple[dict[str, Any], ...]  # contents of `result.json`, by trial

    @property
    def headline(self) -> tuple[str, str]:
        """Returns the split and the metric of the headline score."""
        return headline(self.results[0])

    def scores(self, split: str, metric: str) -> list[float | None]:
        """Returns one score of every run that has it; None if undefined."""
        found = (result["scores"].get(split, {}) for result in self.results)
        return [scores[metric] for scores in found if metric in scores]

    @property
    def median(self) -> float | None:
        """Returns the median of the headline score, or None if no run has one."""
        return summarize(self.scores(*self.headline)).get("median")


def headline(result: dict[str, Any]) -> tuple[str, str]:
    """Returns split and metric of a run's headline score: those of the first scored split."""
    return next(iter(result["scores"])), result["main_metric"]


def headline_score(result: dict[str, Any]) -> float | None:
    """Returns a run's headline score, or None if undefined."""
    split, metric = headline(result)
    return result["scores"][split][metric]


def rank(result: dict[str, Any]) -> tuple:
    """Returns the sort key of a task's runs: the headline score; undefined ones are lowest.

    Ties go to runs that have not collapsed, then to pre-trained ones.
    """
    score = or_lowest(headline_score(result))
    return score, not result.get("collapsed"), result["init"] == "pretrained"


def or_lowest(score: float | None) -> float:
    """Returns a comparable score; an undefined one is lowest."""
    return -math.inf if score is None else score


def collapse(result: dict[str, Any]) -> str:
    """Returns the reasons why a run counts as collapsed, by split, or ""."""
    return "; ".join(f"{split}: {why}" for split, why in (result.get("collapsed") or {}).items())


def read_results(output_dir: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Reads all runs below an output folder, or a folder of such folders.

    Returns the contents of every `result.json` with its "folder", and the folders of unfinished
    runs. InputError if there is no finished run.
    """
    results, unfinished = [], []
    for folder, subfolders, files in storage.walk(output_dir):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if RESULT_FILE in files:
            result = read_json(path := os.path.join(folder, RESULT_FILE))
            with located(path):
                for name, annotation in _NEEDED.items():
                    typed(name, result.get(name), annotation)
                if not result["scores"]:
                    raise InputError("`scores` should be of at least one split")
            results.append({**result, "folder": folder})
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


def group_results(results: Iterable[dict[str, Any]]) -> list[RunGroup]:
    """Groups runs by task, model, init and setting; GLUE's tasks first, in the usual order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in sorted(results, key=lambda result: result["trial"]):
        key = [result.get(name) for name in ("task", "model", "init", "setting")]
        groups.setdefault(json.dumps(key), []).append(result)
    found = []
    for name, runs in groups.items():
        task, model, init, setting = json.loads(name)
        found.append(RunGroup(task, model, init, setting, tuple(runs)))
    order = {task: index for index, task in enumerate(GLUE_TASKS)}
    found.sort(key=lambda g: (order.get(g.task, len(order)), g.task, g.model or "", g.init))
    return found


def best_settings(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Returns for each task, model and init the setting with the highest headline median.

    The papers choose in this way. Ties go to the first setting.
    """
    best: dict[tuple, RunGroup] = {}
    for group in groups:
        known = best.setdefault((group.task, group.model, group.init), group)
        if or_lowest(group.median) > or_lowest(known.median):
            best[group.task, group.model, group.init] = group
    return [group for group in groups if group in best.values()]


def glue_average(best: Sequence[RunGroup]) -> float | None:
    """Returns the average of the eight tasks' medians, or None if one is missing or undefined.

    `best` has one group per task, of one model and init.
    """
    scores = {}
    for group in best:
        if group.task in AVERAGED_METRICS:
            found = group.scores(group.headline[0], AVERAGED_METRICS[group.task])
            scores[group.task] = summarize(found or [None]).get("median")
    complete = all(scores.get(task) is not None for task in GLUE_TASKS)
    return float(np.mean(list(scores.values()))) if complete else None


def choose_run(output_dir: str) -> dict[str, Any]:
    """Chooses the run with the highest `rank` in an output folder or subfolder, and prints it.

    Skips runs that are unfinished or whose weights were removed. Returns the `run_record`.
    InputError if none is left, or if runs are not comparable: of several tasks, models or
    headlines.
    """
    results, _ = read_results(output_dir)
    groups = {(run["task"], run.get("model") or "-", " ".join(headline(run))) for run in results}
    if len(groups) > 1:
        names = "; ".join(", ".join(group) for group in sorted(groups))
        raise InputError(
            f"{output_dir}: should hold the runs of one task and one model, with one headline "
            f"score; name the folder of one. Received: {names}"
        )
    with_weights = [
        run for run in results if storage.isdir(os.path.join(run["folder"], CHECKPOINT_FOLDER))
    ]
    if not with_weights:
        raise InputError(
            f"{output_dir}: should hold a finished run with its weights ({CHECKPOINT_FOLDER}/). "
            f"Received: {len(results)} without"
        )
    best = max(with_weights, key=rank)  # the first by folder if several are equal
    score, why = headline_score(best), collapse(best)
    said = f"{' '.join(headline(best))} {'undefined' if score is None else f'{score:.1f}'}"
    said += ", from random weights" * (best["init"] == "random")
    said += f", collapsed: {why}" if why else ""
    said = f"best run of {len(with_weights)}: {best['folder']}, {said}"
    if why or score is None:
        warn(said)
    else:
        print(said, file=sys.stderr)  # commands print their answers
    return run_record(best)


def run_record(result: dict[str, Any]) -> dict[str, Any]:
    """Returns a run's folder, task, setting, trial, init, headline score, and "collapsed"."""
    split, metric = headline(result)
    return {
        "folder": storage.abspath(result["folder"]),
        **{name: result[name] for name in ("task", "setting", "trial", "init")},
        "split": split,
        "metric": metric,
        "score": headline_score(result),
        "collapsed": result.get("collapsed", {}),
    }

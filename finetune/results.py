"""Results of finished runs: reads them, and chooses the best."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import pandas as pd

from convbert.common import storage
from convbert.common.errors import InputError, located, warn
from convbert.common.files import read_json
from convbert.common.settings import typed
from convbert.training.run_record import CHECKPOINT_FOLDER, RESULT_FILE, TASK_FILE

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
    runs. InputError if there is no finished run, OSError if a folder cannot be read.
    """
    results, unfinished = [], []
    for folder, subfolders, files in storage.walk(output_dir):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if RESULT_FILE in files:
            result = read_json(path := os.path.join(folder, RESULT_FILE))
            with located(path):
                for name, annotation in _NEEDED.items():
                    typed(name, result.get(name), annotation)
                if result["main_metric"] not in next(iter(result["scores"].values()), {}):
                    raise InputError("`scores` should have the `main_metric` of a split")
            results.append({**result, "folder": folder})
            subfolders.clear()
        elif TASK_FILE in files and os.path.basename(folder).startswith("trial_"):
            unfinished.append(folder)
            subfolders.clear()
    if not results:
        raise InputError(
            f"{output_dir}: should hold finished runs of run_finetuning.py, TASK/SETTING/trial_N/"
            f"{RESULT_FILE}. Received: {len(unfinished)} unfinished runs"
        )
    return results, unfinished


def choose_run(output_dir: str) -> dict[str, Any]:
    """Chooses the run with the highest `rank` in an output folder or subfolder, and prints it.

    Skips runs that are unfinished or whose weights were removed. Returns the `run_record`.
    InputError if none is left, or if runs are not comparable: of several tasks, models or
    headlines.
    """
    results, _ = read_results(output_dir)
    groups = {
        (run["task"], run.get("model") or "-", " ".join(headline(run)), _kind_of(run))
        for run in results
    }
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


def _kind_of(run: dict[str, Any]) -> str:
    """Returns the task's kind, columns and labels: all tables are called `table`."""
    task = run.get("hparams", {}).get("task", {})
    return json.dumps([task.get(name) for name in ("kind", "columns", "labels")])


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

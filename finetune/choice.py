"""The choice of one run among those of a folder: the one of highest development score."""

from __future__ import annotations

import os
from typing import Any

import storage
from errors import InputError, warn
from finetune.results import collapse, described_score, headline, headline_score, rank, read_results
from training.model_directory import CHECKPOINT_FOLDER


def choose_run(output_dir: str) -> dict[str, Any]:
    """Chooses the run of highest `rank` in an output folder or one within it, and says so.

    Left out are runs that are unfinished, or whose weights were removed (`keep_all_models`).

    Returns:
        `run_record`, with "chosen_from": "folder", the scores of the "others" and, of those
        "left_out", the reasons, by folder.

    Raises:
        InputError: no run that can be chosen; runs of several tasks, models or headline scores,
            which do not compare.
    """
    results, unfinished = read_results(output_dir)
    groups = {(run["task"], run.get("model") or "-", " ".join(headline(run))) for run in results}
    if len(groups) > 1:
        names = "; ".join(", ".join(group) for group in sorted(groups))
        raise InputError(
            f"{output_dir}: should hold the runs of one task and one model, with one headline "
            f"score; name the folder of one. Received: {names}"
        )

    def name(folder: str) -> str:
        return os.path.relpath(folder, output_dir)

    left_out, considered = {name(folder): "unfinished" for folder in unfinished}, []
    for result in results:
        if storage.isdir(os.path.join(result["folder"], CHECKPOINT_FOLDER)):
            considered.append(result)
        else:
            left_out[name(result["folder"])] = f"its weights were removed, {_described(result)}"
    if not considered:
        raise InputError(
            f"{output_dir}: should hold a finished run with its weights ({CHECKPOINT_FOLDER}/). "
            f"Received: {len(results)} without"
        )
    best, *others = sorted(considered, key=rank, reverse=True)  # stable: by folder if equal
    print(f"best run of {len(considered)}: {best['folder']}, {_described(best)}")
    if headline_score(best) is None:
        warn(f"{best['folder']}: no run has a score that is defined")
    if collapse(best):
        warn(f"{best['folder']}: the best run is collapsed, {collapse(best)}")
    scores = {name(run["folder"]): headline_score(run) for run in others}
    folder = storage.abspath(output_dir)
    chosen_from = {"folder": folder, "others": scores, "left_out": left_out}
    return run_record(best) | {"chosen_from": chosen_from}


def run_record(result: dict[str, Any]) -> dict[str, Any]:
    """What is to be known of a run: where it is, what it is, its headline score."""
    split, metric = headline(result)
    return {
        "folder": storage.abspath(result["folder"]),
        **{name: result[name] for name in ("task", "setting", "trial", "init")},
        "split": split,
        "metric": metric,
        "score": headline_score(result),
        "collapsed": result.get("collapsed", {}),
    }


def _described(run: dict[str, Any]) -> str:
    random = ", from random weights" if run["init"] == "random" else ""
    return f"{described_score(run)}{random}{', collapsed' if collapse(run) else ''}"

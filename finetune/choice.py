"""The choice of one run among those of a folder: the one of highest development score."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import storage
from errors import InputError
from finetune.results import collapse, headline, headline_score, rank, read_results
from training.model_directory import CHECKPOINT_FOLDER


@dataclasses.dataclass(frozen=True)
class Choice:
    """A run, and what it was chosen from.

    Attributes:
        folder: where the runs were looked for.
        considered: contents of `result.json` of the runs compared, the chosen one first.
        left_out: folder -> why that run could not be chosen.
    """

    folder: str
    considered: tuple[dict[str, Any], ...]
    left_out: dict[str, str]

    @property
    def run(self) -> dict[str, Any]:
        """The chosen run."""
        return self.considered[0]

    def record(self) -> dict[str, Any]:
        """The choice as JSON: the run, its score, and what it was chosen from."""
        others = {run["folder"]: headline_score(run) for run in self.considered[1:]}
        return run_record(self.run) | {
            "chosen_from": {
                "folder": storage.abspath(self.folder),
                "others": _relative(others, self.folder),
                "left_out": _relative(self.left_out, self.folder),
            }
        }

    def lines(self) -> list[str]:
        """The choice in words, a line per run."""
        split, metric = headline(self.run)
        count = len(self.considered)
        found = [f"best run: {self.run['folder']}, {_described(self.run)}"]
        found.append(
            f"  highest {split} {metric} of {count} considered"
            f"{f', {len(self.left_out)} left out' if self.left_out else ''}"
        )
        for run in self.considered[1:]:
            name = os.path.relpath(run["folder"], self.folder)
            found.append(f"  not chosen: {name}, {_described(run)}")
        for folder, reason in self.left_out.items():
            found.append(f"  left out: {os.path.relpath(folder, self.folder)}, {reason}")
        return found

    def warnings(self) -> list[str]:
        """What speaks against the chosen run, a sentence each."""
        found = []
        if headline_score(self.run) is None:
            found.append(f"{self.run['folder']}: no run has a score that is defined")
        if self.run.get("collapsed"):
            found.append(f"{self.run['folder']}: the best run is collapsed, {collapse(self.run)}")
        return found


def choose_run(output_dir: str) -> Choice:
    """Chooses the run of highest headline score, whatever weights it began from.

    Where scores are equal, a run that is not collapsed comes first, then a pre-trained one. Left
    out are runs that are unfinished, or whose weights were removed (`keep_all_models`).

    Args:
        output_dir: of run_finetuning.py, or a folder within it.

    Raises:
        InputError: no run that can be chosen; runs of several tasks, models or headline scores,
            which do not compare.
    """
    results, unfinished = read_results(output_dir)
    _check_comparable(results, output_dir)
    left_out = dict.fromkeys(unfinished, "unfinished")
    considered = []
    for result in results:
        if storage.isdir(os.path.join(result["folder"], CHECKPOINT_FOLDER)):
            considered.append(result)
        else:
            left_out[result["folder"]] = f"its weights were removed, {_described(result)}"
    if not considered:
        raise InputError(
            f"{output_dir}: should hold a finished run with its weights ({CHECKPOINT_FOLDER}/). "
            f"Received: {len(results)} without"
        )
    considered.sort(key=rank, reverse=True)  # stable: by folder where all else is equal
    return Choice(output_dir, tuple(considered), left_out)


def run_record(result: dict[str, Any]) -> dict[str, Any]:
    """What is to be known of a run: where it is, what it is, its headline score."""
    split, metric = headline(result)
    names = ("task", "setting", "trial", "init")
    return {
        "folder": storage.abspath(result["folder"]),
        **{name: result[name] for name in names},
        "split": split,
        "metric": metric,
        "score": headline_score(result),
        "collapsed": result.get("collapsed", {}),
    }


def _check_comparable(results: list[dict[str, Any]], output_dir: str) -> None:
    kinds = {(run["task"], run.get("model") or "-", " ".join(headline(run))) for run in results}
    if len(kinds) > 1:
        names = "; ".join(", ".join(kind) for kind in sorted(kinds))
        raise InputError(
            f"{output_dir}: should hold the runs of one task and one model, with one headline "
            f"score; name the folder of one. Received: {names}"
        )


def _described(run: dict[str, Any]) -> str:
    score = headline_score(run)
    words = ["score undefined" if score is None else f"{score:.1f}"]
    if run["init"] == "random":
        words.append("from random weights")
    if run.get("collapsed"):
        words.append("collapsed")
    return ", ".join(words)


def _relative(by_folder: dict[str, Any], folder: str) -> dict[str, Any]:
    return {os.path.relpath(name, folder): value for name, value in by_folder.items()}

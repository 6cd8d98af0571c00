"""All runs of a command: tasks x settings x trials; finished ones are kept and not run again."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import shutil
import sys
import time
from typing import Any

import tensorflow as tf

from errors import InputError, LossNotFinite
from finetune.hparams import FinetuningHParams
from finetune.results import rank
from finetune.trial import Context, Trial, finished_result, run_trial
from training.checkpointing import CHECKPOINT_FOLDER
from training.hyperparameters import field_names, refuse_unknown
from training.monitoring import live_bar

# What the ConvBERT authors searched, in the text above Table 2 of the supplement.
PAPER_GRID = {
    "learning_rate": [5e-5, 1e-4, 2e-4, 3e-4],
    "weight_decay_rate": [0.01, 0.1],
    "num_train_epochs": [10, 3],
}
_SHORT = {"learning_rate": "lr", "weight_decay_rate": "wd", "num_train_epochs": "epochs"}
NOT_SWEPT = ("seed", "precision", "init")


def grid_points(grid: dict[str, Any]) -> list[dict[str, Any]]:
    """All combinations of a grid, {hyper-parameter: list of values}; of an empty one, itself.

    Raises:
        InputError: an unknown name, or no list of values.
    """
    allowed = [name for name in field_names(FinetuningHParams) if name not in NOT_SWEPT]
    refuse_unknown(grid, allowed)
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise InputError(f"--sweep: `{name}` should be a list of values. Received: {values!r}")
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def setting_of(hparams: FinetuningHParams, swept: dict[str, Any]) -> dict[str, Any]:
    """What tells settings apart in reports: what the papers vary, and what this sweep does."""
    return {
        name: getattr(hparams, name) for name in [*_SHORT, *(n for n in swept if n not in _SHORT)]
    }


def folder_name(setting: dict[str, Any], init: str) -> str:
    """A folder name for a setting, such as `lr3e-04_wd0.01_epochs3`."""
    parts = []
    for name, value in setting.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        parts.append(f"{_SHORT.get(name, name + '-')}{text}")
    return "_".join([*parts, *([] if init == "pretrained" else [init])])


class SweepBar:
    """One live bar over the steps of all runs: run, task, loss, examples/s, ETA of everything.

    Args:
        trials: what is left to run.
        train: False where there are no steps, only splits to predict.
    """

    def __init__(self, trials: list[Trial], train: bool):
        self._runs, self._done = len(trials), 0
        steps = sum(trial.num_steps for trial in trials) if train else None
        self._bar = live_bar(steps, "{desc}")

    def start(self, trial: Trial) -> None:
        """Names the run that begins."""
        self._done += 1
        name = f"{trial.data.task.name}, trial {trial.number}"
        self._bar.set_description_str(f"run {self._done}/{self._runs}, {name}", refresh=False)

    def action(self, step: tf.Variable, batch_size: int):
        """What the training loop calls with the metrics of each loop of steps."""
        before = {"step": 0, "time": time.monotonic()}  # from 0: a resumed run's steps count too

        def show(values: dict[str, float]) -> None:
            now, at = time.monotonic(), int(step.numpy())
            done = at - before["step"]
            rate = done * batch_size / (now - before["time"])
            self._bar.set_postfix_str(
                f"step {at}, loss {values['loss']:.3f}, {rate:.0f} examples/s", refresh=False
            )
            self._bar.update(done)
            before.update(step=at, time=now)

        return show

    def close(self) -> None:
        """Draws the bar a last time."""
        self._bar.close()


def run_all(
    trials: list[Trial], context: Context, *, train: bool = True
) -> tuple[list[dict[str, Any]], list[str]]:
    """Runs what is not finished, in order; a run that diverges does not stop the others.

    Returns:
        The results of all finished runs, and what stopped the others.

    Raises:
        InputError: two runs would share a folder, or a folder holds a run of other
            hyper-parameters, another encoder or other data. Found before anything runs.
    """
    folders = collections.Counter(trial.folder for trial in trials)
    for folder, count in folders.items():
        if count > 1:
            raise InputError(
                f"Each run should be asked for once. Received: {folder} {count} times, by --task,"
                " --init or equal values in --sweep"
            )
    results = {trial.folder: finished_result(trial, context) for trial in trials}
    missing = [trial for trial in trials if results[trial.folder] is None]
    if not train and missing:
        raise InputError(f"{missing[0].folder}: there is no finished run to measure again")
    left = missing if train else trials
    if train and len(left) < len(trials):
        print(
            f"{len(trials) - len(left)} of {len(trials)} runs are finished already", file=sys.stderr
        )
    bar, stopped = SweepBar(left, train), []
    try:
        for trial in left:
            bar.start(trial)
            try:
                results[trial.folder] = run_trial(trial, context, bar.action, train=train)
            except LossNotFinite as error:
                stopped.append(f"{trial.folder}: {error}")
                continue
            if train and not context.run.keep_all_models:
                _drop_all_but_best(trial, trials, results)
    finally:
        bar.close()
    return [result for result in results.values() if result is not None], stopped


def _drop_all_but_best(current: Trial, trials: list[Trial], results: dict) -> None:
    """Removes the weights of a task's finished runs, all but the best one's."""
    name = current.data.task.name
    finished = [trial for trial in trials if trial.data.task.name == name and results[trial.folder]]
    best = max(finished, key=lambda trial: rank(results[trial.folder]))
    for trial in finished:
        if trial is not best:
            shutil.rmtree(os.path.join(trial.folder, CHECKPOINT_FOLDER), ignore_errors=True)


def with_seed(hparams: FinetuningHParams, trial: int) -> FinetuningHParams:
    """The hyper-parameters of a trial: its own seed."""
    return dataclasses.replace(hparams, seed=hparams.seed + trial)

"""All runs of a command: tasks x settings x trials; finished ones are kept and not run again."""

from __future__ import annotations

import collections
import os
import time
from typing import Any

import tensorflow as tf

import storage
from errors import InputError, LossNotFinite
from finetune.learner import in_order_of_sharing
from finetune.results import rank
from finetune.trial import Context, Trial, finished_result, run_trial
from training import workers
from training.model_directory import CHECKPOINT_FOLDER
from training.monitoring import live_bar


class SweepBar:
    """One live bar over the steps of all runs: run, task, loss, examples/s, ETA of everything.

    Without training there are no steps, only splits to predict.
    """

    def __init__(self, trials: list[Trial], train: bool):
        self._runs, self._done = len(trials), 0
        steps = sum(trial.num_steps for trial in trials) if train else None
        self._bar = live_bar(steps, "{desc}")
        self.close = self._bar.close

    def start(self, trial: Trial) -> None:
        """Names the run that begins."""
        self._done += 1
        name = f"{trial.data.task.name}, trial {trial.number}"
        self._bar.set_description_str(f"run {self._done}/{self._runs}, {name}", refresh=False)

    def action(self, step: tf.Variable, batch_size: int):
        """What the training loop calls with the metrics of each loop of steps."""
        before, then = 0, time.monotonic()  # from 0: a resumed run's steps count too

        def show(values: dict[str, float]) -> None:
            nonlocal before, then
            now, at = time.monotonic(), int(step.numpy())
            rate = (at - before) * batch_size / (now - then)
            self._bar.set_postfix_str(
                f"step {at}, loss {values['loss']:.3f}, {rate:.0f} examples/s", refresh=False
            )
            self._bar.update(at - before)
            before, then = at, now

        return show


def run_all(
    trials: list[Trial], context: Context, *, train: bool = True
) -> tuple[list[dict[str, Any]], list[str]]:
    """Runs what is not finished, in the order of `in_order_of_sharing`.

    A run that diverges does not stop the others.

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
    left = in_order_of_sharing(missing if train else trials)
    finished = len(trials) - len(left)
    if finished:
        workers.say(f"{finished} of {len(trials)} runs are finished already")
    bar, stopped = SweepBar(left, train), []
    try:
        for trial in left:
            bar.start(trial)
            try:
                results[trial.folder] = run_trial(trial, context, bar.action, train=train)
            except LossNotFinite as error:
                stopped.append(f"{trial.folder}: {error}")
                continue
            if train and not context.run.keep_all_models and workers.is_chief():
                _drop_all_but_best(trial, trials, results)
    finally:
        bar.close()
        context.learners.forget()
    return [result for result in results.values() if result is not None], stopped


def estimate(trials: list[Trial], context: Context) -> str:
    """Runs and steps that are left, and how long training takes by a few steps of each shape."""
    left = [t for t in trials if t.data.train and finished_result(t, context) is None]
    per_step: dict[tuple, float] = {}
    for trial in left:
        if _shape(trial) not in per_step:
            trainer = context.learners.of(trial, context).trainer
            seconds = []
            for _ in range(3):  # the first of a length compile
                started = time.monotonic()
                trainer.train(tf.constant(4))
                seconds.append((time.monotonic() - started) / 4)
            per_step[_shape(trial)] = min(seconds)
            trainer.close()
    context.learners.forget()
    steps = sum(trial.num_steps for trial in left)
    hours = sum(trial.num_steps * per_step[_shape(trial)] for trial in left) / 3600
    return (
        f"{len(left)} of {len(trials)} runs are left, {steps:,} steps. Training takes about "
        f"{hours:.2f} hours, without evaluation."
    )


def _shape(trial: Trial) -> tuple:
    return trial.data.task.name, trial.hparams.train_batch_size, trial.hparams.max_seq_length


def _drop_all_but_best(current: Trial, trials: list[Trial], results: dict) -> None:
    """Removes the weights of a task's finished runs, all but the best one's."""
    name = current.data.task.name
    finished = [trial for trial in trials if trial.data.task.name == name and results[trial.folder]]
    best = max(finished, key=lambda trial: rank(results[trial.folder]))
    for trial in finished:
        if trial is not best:
            storage.rmtree(os.path.join(trial.folder, CHECKPOINT_FOLDER), ignore_errors=True)

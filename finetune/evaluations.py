"""Evaluation during training: intermediate scores and the best weights."""

from __future__ import annotations

import math
import os
from typing import Any

import tensorflow as tf

from convbert.common import storage
from convbert.finetune.objective import FineTuning
from convbert.finetune.plan import Trial
from convbert.finetune.results import or_lowest
from convbert.training import checkpointing, monitoring, workers
from convbert.training.run_record import CHECKPOINT_FOLDER

SPLIT = "dev"  # the split of the rows in metrics.jsonl
WEIGHTS_NAME = "weights"  # name of a finished run's checkpoint
_FOLDER = "best"  # in the run's folder, until the run is finished


class Evaluations:
    """Schedules evaluations of a run, records scores, and keeps the best weights.

    Scores are the rows of `metrics.jsonl` up to `step`, the current step. Weights are written
    before their row, so that a run that is killed in between is evaluated again.
    """

    def __init__(self, objective: FineTuning, trial: Trial, step: int):
        hparams = trial.hparams
        self._objective, self._folder = objective, os.path.join(trial.folder, _FOLDER)
        self._metric, self._total = trial.data.task.metrics[0], trial.num_steps
        self._keeps_best = hparams.keep == "best"
        self._every = hparams.eval_steps or (trial.steps_per_epoch if self._keeps_best else None)
        # By ascending step. All workers read the chief's file.
        self._scores = {
            row["step"]: or_lowest(row[self._metric])
            for row in monitoring.read_metrics(trial.folder)
            if row["split"] == SPLIT and row["step"] <= step and self._metric in row
        }

    def next(self, step: int) -> int:
        """Returns the next step at which the run is evaluated, at most the last step."""
        if self._every is None:
            return self._total
        return min((step // self._every + 1) * self._every, self._total)

    def due(self, step: int) -> bool:
        """Returns True if an evaluation is due at this step and has not been done."""
        is_one = self._every is not None and (step % self._every == 0 or step == self._total)
        return is_one and step > 0 and step not in self._scores

    def add(self, step: int, scores: dict[str, float | None]) -> None:
        """Adds the scores of a step, and keeps its weights if they are the best."""
        self._scores[step] = or_lowest(scores[self._metric])
        if self._keeps_best and self.best_step == step:
            keep_weights_only(workers.written(self._folder), self._objective, step)

    @property
    def best_step(self) -> int | None:
        """Returns the first step with the highest score, the last if none has one, or None."""
        defined = {step: score for step, score in self._scores.items() if score > -math.inf}
        return max(defined, key=defined.__getitem__, default=max(self._scores, default=None))

    def finish(self) -> dict[str, Any]:
        """Restores the best weights if they were kept; returns values for `result.json`."""
        if self.best_step is None:
            return {}
        if self._keeps_best:
            workers.barrier()  # the chief has written the weights
            checkpointing.restore(tf.train.Checkpoint(objective=self._objective), self._folder)
        return {"best_step": self.best_step}


def keep_weights_only(folder: str, objective: FineTuning, step: int) -> None:
    """Replaces the checkpoints of a folder by one without the optimizer's slots, a third as large.

    For a run that keeps the last step's weights, call it after `result.json` is written: until then
    the larger checkpoint of the same weights stays.
    """
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(objective=objective),
        os.path.join(folder, CHECKPOINT_FOLDER),
        max_to_keep=1,  # removes the others when this one is complete
        checkpoint_name=WEIGHTS_NAME,
    )
    manager.save(step)


def forget_best(folder: str) -> None:
    """Removes the copy of the best weights from the folder of a finished run, which has them."""
    storage.rmtree(os.path.join(folder, _FOLDER), ignore_errors=True)

"""A run of training from where it is to its end: checkpoints, evaluations, signals, rollback."""

from __future__ import annotations

import dataclasses
import gc
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from convbert.common import stopping, storage
from convbert.common.errors import InputError, LossNotFinite, warn
from convbert.common.files import read_json, write_json
from convbert.common.settings import present
from convbert.training import checkpointing, monitoring, workers
from convbert.training.loop import Evaluator, Trainer

SKIPPED_FILE = "skipped_steps.json"  # in a model directory


class Rollback:
    """Goes back to the last checkpoint when a loss is not finite, and skips that step from then on.

    `skipped` has the numbers of the skipped steps, from 1. InputError if the list in the model
    directory is damaged.

    Args:
        checkpoint: the objects to restore from `model_dir`.
        limit: the number of steps that a run may skip.
        resumed: whether the run resumes; otherwise a list of skipped steps is of another run.
    """

    def __init__(
        self, checkpoint: tf.train.Checkpoint, model_dir: str, limit: int, *, resumed: bool
    ):
        self._checkpoint, self._model_dir, self._limit = checkpoint, model_dir, limit
        self._path = os.path.join(workers.written(model_dir), SKIPPED_FILE)
        self.skipped: set[int] = set()
        path = os.path.join(model_dir, SKIPPED_FILE)
        if not resumed:
            if storage.exists(self._path):  # this run would read it when it resumes
                write_json(self._path, {"steps": []})
        elif storage.exists(path):
            steps = read_json(path).get("steps")
            if not isinstance(steps, list) or not all(type(step) is int for step in steps):
                raise InputError(f"{path}: `steps` should be a list of numbers. Received: {steps}")
            self.skipped = {*steps}

    def __call__(self, error: LossNotFinite) -> None:
        """Rolls back; raises the error if the limit is reached or there is no checkpoint yet."""
        if len(self.skipped) >= self._limit or not checkpointing.has_checkpoint(self._model_dir):
            raise error
        self.skipped.add(present(error.step))
        write_json(self._path, {"steps": sorted(self.skipped)})
        warn(f"step {error.step} is skipped, as its loss or gradient is not finite")
        checkpointing.restore(self._checkpoint, self._model_dir)


@dataclasses.dataclass(frozen=True)
class Training:
    """A run that is ready to train."""

    model_dir: str  # to which this worker writes
    trainer: Trainer
    evaluator: Evaluator | None
    manager: tf.train.CheckpointManager
    log: monitoring.MetricsLog
    total_steps: int  # at which training ends
    steps_per_loop: int  # between two rows of metrics
    interval: int  # steps between checkpoints, each with an evaluation
    num_eval_steps: int  # batches of an evaluation, -1 for all
    progress_bar: Callable[[], monitoring.ProgressBar]  # a bar of the remaining steps
    rollback: Rollback  # called when a loss is not finite

    @property
    def step(self) -> int:
        """The number of steps taken."""
        return int(self.trainer.optimizer.iterations.numpy())

    def evaluate(self) -> None:
        """Evaluates the current weights on held-out records, if the run evaluates."""
        if self.evaluator is not None:
            values = self.evaluator.evaluate(self.num_eval_steps)
            self.log.add("heldout", values)

    def train(self) -> None:
        """Trains the remaining steps; saves and evaluates every `interval` steps."""
        trainer, log, total = self.trainer, self.log, self.total_steps
        if (step := self.step) >= total:
            self.evaluate()
            return
        bar, trainer.skipped = self.progress_bar(), self.rollback.skipped
        frozen = False
        try:
            stopped_in = step % self.interval == 0 and log.has("train") and not log.has("heldout")
            if workers.gather({"stopped in": np.bool_(stopped_in)})[0]["stopped in"]:
                self.evaluate()  # the run was stopped before it
            while (step := self.step) < total:
                with stopping.deferred(
                    "this loop of steps", workers.agree_to_stop
                ) as stop_if_asked:
                    until = min((step // self.interval + 1) * self.interval, total)
                    try:
                        while (left := until - self.step) > 0:
                            values = trainer.train(min(self.steps_per_loop, left))
                            log.add("train", values)
                            bar(values)
                            stop_if_asked()
                    except LossNotFinite as error:
                        self.rollback(error)
                        trainer.close()  # its batches go on from the restored step
                        continue
                    checkpointing.save(self.manager, until)
                self.evaluate()
                if not gc.get_freeze_count():
                    frozen = True
                    # All is traced. Python looks for garbage when its objects have grown by a
                    # quarter, which without those that are here now is soon.
                    gc.collect()
                    gc.freeze()
                    gc.collect()
        except stopping.Stopped:
            checkpointing.save(self.manager, self.step)
            workers.say(f"\nsaved at step {self.step}")
            raise
        finally:
            if frozen:
                gc.unfreeze()
            bar.close()

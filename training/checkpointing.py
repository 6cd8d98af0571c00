"""The model directory: what is written into it, and resuming from what is there."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import files
import storage
from errors import InputError, TrainingStopped, reason, warn
from settings import differences
from training import checkpoint_files, workers
from training.model_directory import CHECKPOINT_FOLDER, HPARAMS_FILE, git_commit, read_record

_ADVICE = "Choose another --model_dir (and --continue_from this one to start from its weights)."
_PACKAGES = ("tensorflow", "tf_keras", "tensorflow-text", "tf-models-official", "numpy")


class CheckpointManager(tf.train.CheckpointManager):
    """TensorFlow's, but saves only when told to, and says clearly when it cannot write.

    TensorFlow writes a checkpoint under temporary names and updates the list of checkpoints last,
    so a run killed while saving resumes from the checkpoint before.
    """

    def restore_or_initialize(self) -> str | None:
        """What orbit calls; `create_manager` has restored already."""
        return self.latest_checkpoint

    def save(self, checkpoint_number=None, check_interval=True, options=None):
        """See tf.train.CheckpointManager.save; raises TrainingStopped when it cannot write.

        orbit asks after every loop of steps with `check_interval`. Those calls do nothing, since
        TensorFlow would count intervals from the first loop after each start of the process;
        training saves at multiples of the interval instead.
        """
        if check_interval:
            return None
        try:
            return super().save(checkpoint_number, check_interval, options)
        except (tf.errors.OpError, OSError) as error:
            last = self.latest_checkpoint or "none"
            raise TrainingStopped(
                f"{self.directory}: cannot write the checkpoint of step {checkpoint_number}"
                f" ({reason(error)}); the last good one is {last}"
            ) from error


def create_manager(
    checkpoint: tf.train.Checkpoint,
    model_dir: str,
    *,
    step: tf.Variable,
    interval: int,
    max_to_keep: int | None,
    initialize: Callable[[], None] | None = None,
) -> CheckpointManager:
    """Restores the newest good checkpoint of `model_dir`; returns a manager that saves the next.

    Where training begins or resumes, so leftovers of killed processes are removed, too, after all
    has been restored. Damaged checkpoints are not counted among those that are kept. Of several
    workers all restore, and save: the chief here, the others into a temporary folder.

    Args:
        max_to_keep: how many to keep; 0 or None keeps all.
        initialize: called where `model_dir` has no checkpoint yet.

    Raises:
        InputError: no checkpoint is readable, or the newest lacks a variable.
    """
    newest = None
    if has_checkpoint(model_dir):
        newest = restore(checkpoint, model_dir, "all that training resumes from")
    elif initialize is not None:
        initialize()
    found = np.int64(-1 if newest is None else checkpoint_step(newest))
    if len({int(told["step"]) for told in workers.gather({"step": found})}) > 1:
        raise InputError(f"{model_dir}: the workers see different checkpoints: it must be shared")
    folder = os.path.join(workers.written(model_dir), CHECKPOINT_FOLDER)
    if workers.is_chief():
        checkpoint_files.clean(folder, newest)
    return CheckpointManager(
        checkpoint,
        folder,
        max_to_keep=max_to_keep or None,
        checkpoint_name="model.ckpt",
        step_counter=step,
        checkpoint_interval=interval,
        last_checkpoint_step=None if newest is None else checkpoint_step(newest),
    )


def has_checkpoint(model_dir: str) -> bool:
    """Whether something was trained here, readable or not."""
    folder = os.path.join(model_dir, CHECKPOINT_FOLDER)
    listed = storage.lexists(os.path.join(folder, checkpoint_files.LIST_FILE))
    return listed or bool(checkpoint_files.find_checkpoints(folder))


def latest_checkpoint(model_dir: str) -> str:
    """Prefix of the newest readable checkpoint of a model directory.

    Says on standard error which files are damaged, where it is not the newest of all.

    Raises:
        InputError: there is no checkpoint, or none that is readable; names the files.
    """
    folder = os.path.join(model_dir, CHECKPOINT_FOLDER)
    path, damaged = checkpoint_files.newest_readable(folder)
    reasons = "; ".join(damaged)
    if path is not None:
        if damaged:
            _warn_once(f"{reasons}; {path} is taken")
        return path
    if damaged:
        raise InputError(
            f"{folder}: no checkpoint is readable: {reasons}. Restore these files from a copy, or"
            " choose another model directory"
        )
    raise InputError(f"{folder}: there is no checkpoint")


_warn_once = functools.cache(warn)  # in each process


def restore(
    checkpoint: tf.train.Checkpoint,
    model_dir: str,
    what: str = f"the networks that config.json and {HPARAMS_FILE} describe",
) -> str:
    """Reads the newest checkpoint of a model directory into everything that `checkpoint` tracks.

    Args:
        what: the same in words, for the error.

    Returns:
        The prefix of the checkpoint.

    Raises:
        InputError: there is no checkpoint, none is readable, or it lacks a variable.
    """
    path = latest_checkpoint(model_dir)
    try:
        checkpoint.restore(path).assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError) as error:
        raise InputError(
            f"{model_dir}: its checkpoint does not hold {what} ({reason(error)})"
        ) from error
    except (tf.errors.OpError, IndexError, RuntimeError) as error:
        raise InputError(f"{path}: the checkpoint cannot be read ({reason(error)})") from error
    return path


def as_stored(model_dir: str) -> contextlib.AbstractContextManager[None]:
    """`no_larger_than` a model directory's newest checkpoint; raises as `latest_checkpoint`."""
    stored = tf.train.list_variables(latest_checkpoint(model_dir))
    return no_larger_than([shape for _, shape in stored], model_dir)


@contextlib.contextmanager
def no_larger_than(shapes: Iterable[Sequence[int]], where: str) -> Iterator[None]:
    """Limits what variables made in the block hold to four times the numbers in stored tensors.

    So a configuration of another network than the tensors beside it takes no memory. The factor is
    for networks of an objective that are not stored.

    Args:
        shapes: of the tensors.
        where: the folder, for the error.

    Raises:
        InputError: for the first variable that goes beyond it.
    """
    stored = sum(map(math.prod, shapes))
    made, beyond = 0, []

    def make(next_creator, **options):
        nonlocal made
        made += math.prod(options["shape"] or ())
        if made > 4 * stored:
            beyond.append(f"{options['name']} {list(options['shape'])}")
            raise InputError(beyond[0])
        return next_creator(**options)

    try:
        with tf.variable_creator_scope(make):
            yield
    except Exception as error:
        if beyond:  # Keras adds what it called
            raise InputError(
                f"{where}: config.json should describe the network of the weights beside it, which"
                f" have {stored:,} numbers. Received: {beyond[0]}"
            ) from error
        raise


def checkpoint_step(path: str) -> int:
    """The training step of a checkpoint, which its name ends with."""
    return int(path.rsplit("-", 1)[1])


def check_run(model_dir: str, hparams: dict[str, Any], advice: str = _ADVICE) -> None:
    """Raises InputError when a directory with checkpoints was made with other hyper-parameters."""
    if has_checkpoint(model_dir):
        reject_other_run(model_dir, read_record(model_dir)["hparams"], hparams, advice)


def describe_run(model_dir: str, hparams: dict[str, Any], run_settings: dict[str, Any]) -> None:
    """Writes `hparams.json` into a model directory, created when missing; see `check_run`.

    Args:
        hparams: the resolved settings that change results.
        run_settings: those that do not; recorded, not compared.
    """
    storage.makedirs(model_dir)
    record = {
        "hparams": hparams,
        "run_settings": run_settings,
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "git_commit": git_commit(),
    }
    files.write_json(os.path.join(model_dir, HPARAMS_FILE), record)


def reject_other_run(folder: str, saved: dict[str, Any], now: dict[str, Any], advice: str) -> None:
    """Raises InputError, with the differences and `advice`, where a folder holds another run."""
    if changed := differences(saved, now):
        lines = "\n  ".join(changed)
        raise InputError(f"{folder} holds a run of another configuration:\n  {lines}\n{advice}")

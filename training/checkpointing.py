"""The model directory: what is written into it, and resuming from what is there.

TensorFlow writes a checkpoint under temporary names (`PREFIX_temp/`), renames the data, writes
`PREFIX.index`, and updates the list of checkpoints (the file `checkpoint`) last. The newest one is
found by the files, as any of them may be damaged; the list is for tf.train.CheckpointManager.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib.metadata
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import files
import storage
from errors import InputError, TrainingStopped, reason, warn
from settings import differences
from training import workers
from training.model_directory import CHECKPOINT_FOLDER, HPARAMS_FILE, git_commit, read_record

_ADVICE = "Choose another --model_dir (and --continue_from this one to start from its weights)."
_PART = re.compile(r"(.+)\.(?:index|data-\d{5}-of-\d{5})")
READING_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError, SystemError)
_PACKAGES = ("tensorflow", "tf_keras", "tensorflow-text", "tf-models-official", "numpy")


class CheckpointManager(tf.train.CheckpointManager):
    """TensorFlow's, but saves only when told to, and says clearly when it cannot write."""

    def restore_or_initialize(self) -> str | None:
        """What orbit calls; `create_manager` has restored already."""
        return self.latest_checkpoint

    def save(self, checkpoint_number=None, check_interval=True, options=None):
        """See tf.train.CheckpointManager.save; raises TrainingStopped when it cannot write.

        orbit asks with `check_interval` after every loop of steps, which does nothing: TensorFlow
        would count intervals from where the process started, not multiples of the interval.
        """
        if check_interval:
            return None
        try:
            return super().save(checkpoint_number, check_interval, options)
        except (tf.errors.OpError, OSError) as error:
            raise TrainingStopped(
                f"{self.directory}: cannot write the checkpoint of step {checkpoint_number}"
                f" ({reason(error)}); the last good one is {self.latest_checkpoint or 'none'}"
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

    What killed processes left is removed after all has been restored. Of several workers all
    restore, and save: the chief here, the others into a temporary folder.

    Args:
        max_to_keep: how many to keep; 0 or None keeps all.
        initialize: called where `model_dir` has no checkpoint yet.

    Raises:
        InputError: no checkpoint is readable, or the newest lacks a variable.
    """
    newest = restore(checkpoint, model_dir) if has_checkpoint(model_dir) else None
    if newest is None and initialize is not None:
        initialize()
    step_found = None if newest is None else step_of(newest)
    told = workers.gather({"step": np.int64(-1 if step_found is None else step_found)})
    if len({int(of["step"]) for of in told}) > 1:
        raise InputError(f"{model_dir}: the workers see different checkpoints: it must be shared")
    folder = os.path.join(workers.written(model_dir), CHECKPOINT_FOLDER)
    if workers.is_chief():
        _clean(folder, newest)
    return CheckpointManager(
        checkpoint,
        folder,
        max_to_keep=max_to_keep or None,
        checkpoint_name="model.ckpt",
        step_counter=step,
        checkpoint_interval=interval,
        last_checkpoint_step=step_found,
    )


def _clean(folder: str, newest: str | None) -> None:
    """Removes what killed processes left in a folder, and lists its checkpoints up to the newest.

    Only for a process that begins to train here: it may remove what another is writing.
    """
    entries = storage.listdir(folder) if storage.isdir(folder) else []
    for prefix in [os.path.join(folder, e[:-5]) for e in entries if e.endswith("_temp")]:
        for path in _parts(prefix) if damage(prefix) else ():
            storage.remove(path)
        storage.rmtree(f"{prefix}_temp", ignore_errors=True)  # last: it tells that the others
    for path in storage.matching(folder, "checkpoint.tmp*"):  # were cut off
        storage.remove(path)
    if newest is not None:
        found = find_checkpoints(folder)
        kept = found[found.index(newest) :][::-1]
        times = [float(i + 1) for i in range(len(kept))]
        tf.__internal__.train.update_checkpoint_state(
            folder,
            newest,
            kept,
            save_relative_paths=True,
            all_model_checkpoint_timestamps=times,
        )


def find_checkpoints(folder: str) -> list[str]:
    """Prefixes of the checkpoints of a folder, also of damaged ones, the highest step first."""
    entries = storage.listdir(folder) if storage.isdir(folder) else []
    names = {match[1] for match in map(_PART.fullmatch, entries) if match}
    ordered = sorted(names, key=lambda name: (step_of(name), name), reverse=True)
    return [os.path.join(folder, name) for name in ordered]


def newest_readable(folder: str) -> tuple[str | None, list[str]]:
    """The newest checkpoint of which every tensor can be read, and what is wrong with newer ones.

    One whose writing was cut off by the end of the process is none.
    """
    wrong = []
    for prefix in find_checkpoints(folder):
        fault = damage(prefix)
        if fault is None:
            return prefix, wrong
        if not storage.isdir(f"{prefix}_temp"):
            wrong.append(fault)
    return None, wrong


def _parts(prefix: str) -> list[str]:
    folder, name = os.path.split(prefix)
    return storage.matching(folder, glob.escape(name) + ".*")


_readable: set[tuple] = set()  # checkpoints, with sizes, whose tensors this process has read


def damage(prefix: str) -> str | None:
    """Returns why a checkpoint cannot be read; None if every tensor matches its checksum."""
    parts = _parts(prefix)
    found = (prefix, *((path, storage.getsize(path)) for path in parts))
    if found in _readable:
        return None
    try:
        for path in parts:
            files.check_regular(path)  # reading a pipe would never end
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except READING_ERRORS as error:
        return f"{prefix} cannot be read ({reason(error)})"
    _readable.add(found)
    return None


def has_checkpoint(model_dir: str) -> bool:
    """Returns True where something was trained, readable or not."""
    path, damaged = newest_readable(os.path.join(model_dir, CHECKPOINT_FOLDER))
    return path is not None or bool(damaged)


def latest_checkpoint(model_dir: str) -> str:
    """Prefix of the newest readable checkpoint; says on standard error where newer are damaged.

    Raises:
        InputError: there is no checkpoint, or none that is readable.
    """
    folder = os.path.join(model_dir, CHECKPOINT_FOLDER)
    path, damaged = newest_readable(folder)
    if path is None:
        wrong = "; ".join(damaged) or "there is none"
        raise InputError(f"{folder}: no checkpoint is readable: {wrong}")
    if damaged:
        _warn_once(f"{'; '.join(damaged)}; {path} is taken")
    return path


_warn_once = functools.cache(warn)  # in each process


def restore(checkpoint: tf.train.Checkpoint, model_dir: str) -> str:
    """Reads the newest checkpoint into all that `checkpoint` tracks; returns its prefix.

    Raises:
        InputError: there is no checkpoint, none is readable, or it lacks a variable.
    """
    path = latest_checkpoint(model_dir)
    try:
        checkpoint.restore(path).assert_existing_objects_matched().expect_partial()
    except (AssertionError, *READING_ERRORS) as error:
        raise InputError(
            f"{path}: the checkpoint does not hold all that is read from it ({reason(error)})"
        ) from error
    return path


def as_stored(model_dir: str) -> contextlib.AbstractContextManager[None]:
    """`no_larger_than` a model directory's newest checkpoint; raises as `latest_checkpoint`."""
    stored = tf.train.list_variables(latest_checkpoint(model_dir))
    return no_larger_than([shape for _, shape in stored], model_dir)


@contextlib.contextmanager
def no_larger_than(shapes: Iterable[Sequence[int]], where: str) -> Iterator[None]:
    """Raises InputError where variables made in the block hold four times the stored `shapes`.

    So a configuration of another network than the tensors beside it, in the folder `where`, takes
    no memory. The factor is for networks of an objective that are not stored.
    """
    left, error = 4 * sum(map(math.prod, shapes)), None

    def make(next_creator, **options):
        nonlocal left, error
        left -= math.prod(options["shape"] or ())
        if left < 0:
            error = InputError(
                f"{where}: config.json should describe the network of the weights beside it."
                f" Received: {options['name']} {list(options['shape'])}, which is too large"
            )
            raise error
        return next_creator(**options)

    try:
        with tf.variable_creator_scope(make):
            yield
    except Exception:
        if error:  # Keras adds what it called
            raise error from None
        raise


def step_of(prefix: str) -> int:
    """The training step that the name of a checkpoint ends with; -1 without one."""
    match = re.search(r"-(\d+)$", prefix)
    return int(match[1]) if match else -1


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

"""Checkpoints of a model directory: saving, and resuming from the newest that is not damaged.

TensorFlow writes a checkpoint under temporary names (`PREFIX_temp/`), renames the data, writes
`PREFIX.index`, and updates the list of checkpoints (the file `checkpoint`) last. The newest one is
found by its files, as any file may be damaged; the list is for tf.train.CheckpointManager.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from convbert.common import files, storage
from convbert.common.errors import InputError, TrainingStopped, reason, warn
from convbert.training import workers
from convbert.training.run_record import CHECKPOINT_FOLDER, read_record, reject_other_run

_PART = re.compile(r"(.+)\.(?:index|data-\d{5}-of-\d{5})")
READING_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError, SystemError, TypeError)


def create_manager(
    checkpoint: tf.train.Checkpoint,
    model_dir: str,
    *,
    step: tf.Variable,
    max_to_keep: int | None,
    initialize: Callable[[], None] | None = None,
) -> tf.train.CheckpointManager:
    """Restores the newest good checkpoint of `model_dir`; returns a manager that saves the next.

    All workers restore and save: the chief here, the others into a temporary folder.

    `max_to_keep` is the number of checkpoints to keep, all if 0 or None; `initialize` is called if
    `model_dir` has no checkpoint yet. InputError as for `restore`.
    """
    if mark := re.search(r"[*?[]", model_dir):  # it would delete the checkpoints of other folders
        raise InputError(
            f"{model_dir}: TensorFlow takes {mark[0]} for a pattern; rename the folder"
        )
    newest = restore(checkpoint, model_dir) if has_checkpoint(model_dir) else None
    if newest is None and initialize is not None:
        initialize()
    told = workers.gather({"step": np.int64(step_of(newest or ""))})
    if len({int(of["step"]) for of in told}) > 1:
        raise InputError(f"{model_dir}: the workers see different checkpoints: it must be shared")
    folder = os.path.join(workers.written(model_dir), CHECKPOINT_FOLDER)
    if workers.is_chief():
        _clean(folder, newest)
    return tf.train.CheckpointManager(
        checkpoint,
        folder,
        max_to_keep=max_to_keep or None,
        checkpoint_name="model.ckpt",
        # With these three it does not write the checkpoint of a step again, which may damage it.
        step_counter=step,
        checkpoint_interval=1,
        last_checkpoint_step=newest and step_of(newest),
    )


def save(manager: tf.train.CheckpointManager, step: int) -> None:
    """Saves the checkpoint of a step, on all workers; TrainingStopped if it cannot write."""
    try:
        manager.save(step, check_interval=False)
    except (tf.errors.OpError, OSError) as error:
        raise TrainingStopped(
            f"{manager.directory}: cannot write the checkpoint of step {step}"
            f" ({reason(error)}); the last good one is {manager.latest_checkpoint or 'none'}"
        ) from error


def _clean(folder: str, newest: str | None) -> None:
    """Removes leftovers of killed processes, and lists the checkpoints up to the newest.

    Only for a process that starts training here: it would remove files that another is writing.
    """
    entries = storage.listdir(folder) if storage.isdir(folder) else []
    for name in [entry[:-5] for entry in entries if re.fullmatch(r".+-\d+_temp", entry)]:
        for path in storage.matching(folder, f"{name}.*") if damage(f"{folder}/{name}") else ():
            storage.remove(path)
        storage.rmtree(f"{folder}/{name}_temp", ignore_errors=True)  # last: it marks the
    for path in storage.matching(folder, "checkpoint.tmp*"):  # others as unfinished
        storage.remove(path)
    if newest is not None:
        found = find_checkpoints(folder)
        kept = found[found.index(newest) :][::-1]
        update = tf.__internal__.train.update_checkpoint_state
        try:
            update(folder, newest, kept, None, True, [1.0] * len(kept))
        except tf.errors.OpError as error:
            raise InputError(f"{folder}: cannot be written ({reason(error)})") from error


def find_checkpoints(folder: str) -> list[str]:
    """Returns the prefixes of a folder's checkpoints, damaged ones included, latest step first."""
    entries = storage.listdir(folder) if storage.isdir(folder) else []
    names = {match[1] for match in map(_PART.fullmatch, entries) if match}
    ordered = sorted(names, key=lambda name: (step_of(name), name), reverse=True)
    return [os.path.join(folder, name) for name in ordered]


def newest_good(folder: str) -> tuple[str | None, list[str]]:
    """Returns the newest undamaged checkpoint, and the faults of newer finished ones."""
    wrong: list[str] = []
    for prefix in find_checkpoints(folder):
        fault = damage(prefix)
        if fault is None:
            return prefix, wrong
        if not storage.isdir(f"{prefix}_temp"):
            wrong.append(fault)
    return None, wrong


_good: set[tuple] = set()  # digests of the indices of checkpoints that this process has verified
_warn_once = functools.cache(warn)


def damage(prefix: str) -> str | None:
    """Returns why a checkpoint is damaged, or None: all of it can be read and is finite.

    Its slots, too, as a run that continued from infinite ones would not learn.
    """
    try:
        parts = storage.matching(os.path.dirname(prefix), f"{os.path.basename(prefix)}.*")
        for path in parts:
            files.check_regular(path)  # reading a pipe would never end
        index = files.read_bytes(f"{prefix}.index")  # it has a checksum of each tensor
        found = prefix, hashlib.sha256(index).digest(), *map(storage.getsize, parts)
        if found in _good:
            return None
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            tensor = np.asarray(reader.get_tensor(name))
            real = tf.as_dtype(tensor.dtype).is_floating
            if real and (wrong := np.sum(~np.isfinite(tensor))):
                return f"{prefix}: {name} should be finite. NaN or infinite values: {wrong}"
    except READING_ERRORS as error:
        return f"{prefix} cannot be read ({reason(error)})"
    _good.add(found)
    return None


def has_checkpoint(model_dir: str) -> bool:
    """Returns True if there is a checkpoint, damaged or not."""
    return newest_good(os.path.join(model_dir, CHECKPOINT_FOLDER)) != (None, [])


def latest_checkpoint(model_dir: str) -> str:
    """Returns the prefix of the newest undamaged checkpoint; InputError if there is none.

    Warns about newer damaged ones.
    """
    folder = os.path.join(model_dir, CHECKPOINT_FOLDER)
    path, damaged = newest_good(folder)
    wrong = "; ".join(damaged)
    if path is None:
        raise InputError(f"{folder}: no checkpoint can be used: {wrong or 'there is none'}")
    if damaged:
        _warn_once(f"{wrong}; {path} is taken")
    return path


def checkpoint_of_step(model_dir: str, step: int | None) -> str:
    """Returns the prefix of the checkpoint of a step; None means the newest undamaged one.

    InputError if there is none of that step, or it is damaged.
    """
    if step is None:
        return latest_checkpoint(model_dir)
    folder = os.path.join(model_dir, CHECKPOINT_FOLDER)
    found = {step_of(prefix): prefix for prefix in find_checkpoints(folder)}
    if step not in found:
        raise InputError(
            f"{folder}: the step should be one of {', '.join(map(str, sorted(found)))}, whose"
            " checkpoints are here; pre-training keeps all with `keep_checkpoint_max` 0."
            f" Received: {step}"
        )
    if fault := damage(found[step]):
        raise InputError(fault)
    return found[step]


def restore(checkpoint: tf.train.Checkpoint, model_dir: str, step: int | None = None) -> str:
    """Restores the newest checkpoint, or that of `step`; returns its prefix.

    InputError if all are damaged, or it lacks a variable.
    """
    path = checkpoint_of_step(model_dir, step)
    try:
        checkpoint.restore(path).assert_existing_objects_matched().expect_partial()
    except (AssertionError, DecodeError, *READING_ERRORS) as error:
        raise InputError(f"{path}: does not fit what is read ({reason(error)})") from error
    return path


def step_of(prefix: str) -> int:
    """Returns the training step at the end of a checkpoint's name; -1 without one."""
    return int(match[1]) if (match := re.search(r"-(\d+)$", prefix)) else -1


def check_run(model_dir: str, hparams: dict[str, Any], advice: str) -> None:
    """Raises InputError if a directory has checkpoints of a run with other hyper-parameters."""
    if has_checkpoint(model_dir):
        reject_other_run(model_dir, read_record(model_dir)["hparams"], hparams, advice)

"""Finds, reads and writes files of TensorFlow 1 checkpoints."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import tensorflow as tf

from convbert.common import files, storage
from convbert.common.errors import InputError, reason
from convbert.training.checkpointing import READING_ERRORS, find_checkpoints, step_of
from convbert.training.run_record import CHECKPOINT_FOLDER

GLOBAL_STEP = "global_step"


class TensorFile:
    """The tensors of a TensorFlow 1 checkpoint; `prefix` is its path without `.index`."""

    def __init__(self, prefix: str):
        self.where = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except READING_ERRORS as error:
            raise InputError(f"{prefix} cannot be read ({reason(error)})") from error
        self.shapes = dict(sorted(self._reader.get_variable_to_shape_map().items()))

    def read(self, name: str) -> np.ndarray:
        """Reads a tensor of weights, which must be float32."""
        value = self._stored(name)
        if value.dtype != np.float32:
            raise InputError(f"{self.where}: {name} should be float32. Received: {value.dtype}")
        return value

    def step(self) -> tuple[int, str]:
        """Returns the number of updates, and a note on its source."""
        if GLOBAL_STEP not in self.shapes:
            origin = f"as there is no {GLOBAL_STEP}"
            if (step := step_of(self.where)) < 0:
                return 0, f"step 0, {origin}"
            return step, f"step {step}, from the name, {origin}"
        value = self._stored(GLOBAL_STEP)
        if value.shape or not np.issubdtype(value.dtype, np.integer) or value < 0:
            expected = f"{GLOBAL_STEP} should be an integer of at least 0"
            raise InputError(f"{self.where}: {expected}. Received: {value.dtype} {value}")
        return int(value), f"step {value}, as {GLOBAL_STEP} says"

    def _stored(self, name: str) -> np.ndarray:
        try:
            return np.asarray(self._reader.get_tensor(name))
        except READING_ERRORS as error:
            said = f"{name} cannot be read; the file may be truncated ({reason(error)})"
            raise InputError(f"{self.where}: {said}") from error


def find_checkpoint(path: str) -> tuple[str, list[str]]:
    """Returns the prefix of a checkpoint, and notes on the choice.

    In a folder, it is the one named by the file `checkpoint`, else the one of the highest step.
    """
    if not storage.isdir(path):
        return path.removesuffix(".index"), []
    found = [prefix for prefix in find_checkpoints(path) if storage.exists(f"{prefix}.index")]
    if not found:
        ours = storage.isdir(os.path.join(path, CHECKPOINT_FOLDER))
        hint = "; it is a model directory, which --target takes" if ours else ""
        raise InputError(f"{path}: there is no checkpoint (NAME.index) here{hint}")
    with contextlib.suppress(ValueError):  # a damaged list
        listed = tf.train.latest_checkpoint(path)
        found.sort(key=lambda prefix: prefix != listed)
    chosen, *others = found
    if not others:
        return chosen, []
    names = ", ".join(sorted(map(os.path.basename, others)))
    return chosen, [f"read the latest of several checkpoints, {chosen}; not {names}"]


def write_checkpoint(prefix: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes tensors and the `checkpoint` file that names them."""
    names = sorted(tensors)
    try:
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.constant(tensors[name]) for name in names],
        )
    except tf.errors.OpError as error:
        raise InputError(f"{prefix}: cannot be written ({reason(error)})") from error
    folder, name = os.path.split(prefix)
    state = f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
    files.write_text(os.path.join(folder, "checkpoint"), state)

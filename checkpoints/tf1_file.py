"""Files of TensorFlow 1 checkpoints: found, read with every tensor checked, and written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import files
import storage
from errors import InputError, reason
from training.checkpointing import READING_ERRORS, find_checkpoints
from training.model_directory import CHECKPOINT_FOLDER


class TensorFile:
    """A TensorFlow 1 checkpoint that is read from; `shapes` maps names to shapes.

    Args:
        prefix: its path without `.index`; `find_checkpoint` makes one of a folder.

    Raises:
        InputError: there is no such checkpoint, a part of it is missing, or it is damaged.
    """

    def __init__(self, prefix: str):
        self.prefix = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except READING_ERRORS as error:
            raise InputError(f"{prefix} cannot be read ({reason(error)})") from error
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shape) for name, shape in sorted(shapes.items())}

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        """The shape of a tensor; InputError unless it is there and has this rank."""
        self._check_shape(name, [None] * rank)
        return self.shapes[name]

    def read(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """A tensor of weights; InputError unless it has this shape, is float32 and finite."""
        self._check_shape(name, shape)
        value = self._raw(name)
        if value.dtype != np.float32:
            raise InputError(
                f"{self.prefix}: {name} should be of type float32. Received: {value.dtype}"
            )
        if bad := np.size(value) - np.count_nonzero(np.isfinite(value)):
            raise InputError(
                f"{self.prefix}: {name} should hold finite numbers."
                f" Received: {bad} of {value.size} are NaN or infinite"
            )
        return value

    def read_step(self, name: str) -> int:
        """The number of updates made; InputError when it is something else."""
        self._check_shape(name, ())
        value = self._raw(name)
        if not np.issubdtype(value.dtype, np.integer) or value < 0:
            raise InputError(
                f"{self.prefix}: {name} should be an integer of at least 0."
                f" Received: {value.dtype} {value}"
            )
        return int(value)

    def _check_shape(self, name: str, shape: Sequence[int | None]) -> None:
        """Raises InputError unless a tensor has this shape, in which None is any length."""
        if name not in self.shapes:
            raise InputError(f"{self.prefix}: tensor {name} of shape {list(shape)} is missing")
        found = self.shapes[name]
        if len(found) != len(shape) or any(a not in (None, b) for a, b in zip(shape, found)):
            raise InputError(
                f"{self.prefix}: {name} should have shape {list(shape)}. Received: {list(found)}"
            )

    def _raw(self, name: str) -> np.ndarray:
        try:
            return np.asarray(self._reader.get_tensor(name))
        except READING_ERRORS as error:
            raise InputError(
                f"{self.prefix}: {name} cannot be read, as from a file that was cut short"
                f" ({reason(error)})"
            ) from error


def find_checkpoint(path: str) -> tuple[str, list[str]]:
    """The prefix of a checkpoint, and notes on the choice; InputError where there is none.

    `path` is a prefix, its `.index` file, or a folder, of which the latest checkpoint is taken:
    the one that its `checkpoint` file names, else that of the highest step.
    """
    if not storage.isdir(path):
        return path.removesuffix(".index"), []
    found = [prefix for prefix in find_checkpoints(path) if storage.exists(f"{prefix}.index")]
    if not found:
        ours = storage.isdir(os.path.join(path, CHECKPOINT_FOLDER))
        hint = "; it is a model directory, which --target takes" if ours else ""
        raise InputError(f"{path}: there is no checkpoint (NAME.index) here{hint}")
    with contextlib.suppress(ValueError):  # of a list that is damaged
        listed = tf.train.latest_checkpoint(path)
        found.sort(key=lambda prefix: prefix != listed)
    chosen, *others = found
    if not others:
        return chosen, []
    names = ", ".join(sorted(map(os.path.basename, others)))
    return chosen, [f"of several checkpoints the latest, {chosen}, is taken; not {names}"]


def write_checkpoint(prefix: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes tensors and the `checkpoint` file that names them; InputError when that fails."""
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

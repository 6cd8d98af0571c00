"""The model directory: what is written into it, and going on from what is there."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import files
from errors import InputError, TrainingStopped, reason
from training.hyperparameters import differences

_ADVICE = "Choose another --model_dir (and --continue_from this one to go on from its weights)."
CHECKPOINT_FOLDER = "checkpoints"
HPARAMS_FILE = "hparams.json"
TASK_FILE = "task.json"  # of a fine-tuned model
_PACKAGES = ("tensorflow", "tf_keras", "tensorflow-text", "tf-models-official", "numpy")


class CheckpointManager(tf.train.CheckpointManager):
    """TensorFlow's, but saves only when told to, and says clearly when it cannot write.

    TensorFlow writes a checkpoint under temporary names and updates the list of checkpoints last,
    so a run killed while saving goes on from the checkpoint before.
    """

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
    """A manager of the checkpoints in `model_dir`.

    Args:
        checkpoint: everything that training changes.
        model_dir: the model directory.
        step: the training step.
        interval: steps between checkpoints.
        max_to_keep: how many to keep; 0 or None keeps all.
        initialize: called where training starts when `model_dir` has no checkpoint yet.
    """
    return CheckpointManager(
        checkpoint,
        os.path.join(model_dir, CHECKPOINT_FOLDER),
        max_to_keep=max_to_keep or None,
        checkpoint_name="model.ckpt",
        step_counter=step,
        checkpoint_interval=interval,
        init_fn=initialize,
    )


def has_checkpoint(model_dir: str) -> bool:
    """Whether something was trained here."""
    return tf.train.latest_checkpoint(os.path.join(model_dir, CHECKPOINT_FOLDER)) is not None


def latest_checkpoint(model_dir: str) -> str:
    """Prefix of the last checkpoint of a model directory; InputError when there is none."""
    folder = os.path.join(model_dir, CHECKPOINT_FOLDER)
    path = tf.train.latest_checkpoint(folder)
    if path is None:
        raise InputError(f"{folder}: there is no checkpoint")
    return path


def checkpoint_step(path: str) -> int:
    """The training step of a checkpoint, which its name ends with."""
    return int(path.rsplit("-", 1)[1])


def describe_run(
    model_dir: str,
    hparams: dict[str, Any],
    run_settings: dict[str, Any],
    advice: str = _ADVICE,
    before: dict[str, Any] | None = None,
) -> None:
    """Writes `hparams.json`, or refuses when the directory holds a run of other hyper-parameters.

    Args:
        model_dir: the model directory; created when missing.
        hparams: the resolved settings that change results.
        run_settings: those that do not; recorded, not compared.
        advice: what to do about a run of other hyper-parameters.
        before: what runs did before some settings existed, whose records lack them.

    Raises:
        InputError: the directory was made with other hyper-parameters; shows the differences.
    """
    path = os.path.join(model_dir, HPARAMS_FILE)
    if has_checkpoint(model_dir):
        refuse_other_run(
            model_dir,
            {**(before or {}), **files.read_json(path).get("hparams", {})},
            hparams,
            advice,
        )
    make_directory(model_dir)
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    record = {
        "hparams": hparams,
        "run_settings": run_settings,
        "versions": versions,
        "git_commit": git_commit(),
    }
    files.write_json(path, record)


def refuse_other_run(folder: str, saved: dict[str, Any], now: dict[str, Any], advice: str) -> None:
    """Raises InputError, with the differences and `advice`, where a folder holds another run."""
    changed = differences(saved, now)
    if changed:
        raise InputError(
            f"{folder} holds a run of another configuration:\n  "
            + "\n  ".join(changed)
            + f"\n{advice}"
        )


def make_directory(path: str) -> None:
    """Creates a directory; InputError when that cannot be done."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be created ({error.strerror})") from error


def git_commit() -> str | None:
    """Commit of this code, with "-dirty" when files differ from it; None outside a repository."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=os.path.dirname(os.path.abspath(__file__)),
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()

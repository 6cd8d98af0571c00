"""Writes a model directory whose weights are the mean of a model's last checkpoints.

    convbert average --input runs/models/mine --last 4 --output runs/models/mine_mean

The weights of ModernBERT-base are the mean of four (arXiv 2412.13663). Pre-training keeps as many
checkpoints as `keep_checkpoint_max` says. Fine-tuning, export and --continue_from take the output
as they take the input; it has no optimizer state. The output is written atomically.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split

import os
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

from convbert.checkpoints.model_directory import Conversion, save
from convbert.common import plugins, storage
from convbert.common.errors import InputError, main_with_clear_errors
from convbert.common.files import check_new_folder, new_folder
from convbert.model import load_config
from convbert.pretrain.load import (
    load_hparams,
    load_objective,
    recorded_offset,
    recorded_vocabulary,
)
from convbert.training.checkpointing import find_checkpoints, latest_checkpoint, restore, step_of
from convbert.training.run_record import CHECKPOINT_FOLDER, trained_length

FLAGS = flags.FLAGS
flags.DEFINE_string("input", None, "Model directory of a pre-training.")
flags.DEFINE_string("output", None, "Model directory to create; it must be empty or not exist.")
flags.DEFINE_integer("last", 4, "Number of checkpoints, the last ones.", lower_bound=2)
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")


def main(_: list[str]) -> None:
    """Averages as the flags say."""
    check_new_folder(FLAGS.output)
    plugins.load(FLAGS.plugins)
    steps = average(FLAGS.input, FLAGS.last, FLAGS.output)
    print(f"mean of steps {', '.join(map(str, steps))}", f"written: {FLAGS.output}", sep="\n")


def average(model_dir: str, last: int, output: str) -> list[int]:
    """Writes the mean of the last checkpoints, summed in float64; returns their steps.

    They are those of every `save_checkpoints_steps` and the last one, so that an interruption,
    which also saves one, does not change the mean.

    InputError if there are fewer, or one is damaged or lacks a network of the objective.
    """
    folder = os.path.join(model_dir, CHECKPOINT_FOLDER)
    hparams, settings = load_hparams(model_dir)
    interval = settings.get("save_checkpoints_steps", 1)
    newest = step_of(latest_checkpoint(model_dir))
    found = [step for step in map(step_of, find_checkpoints(folder)) if step <= newest]
    steps = [step for step in found if step == found[0] or step % interval == 0][:last][::-1]
    if len(steps) < last:
        raise InputError(
            f"{folder}: there should be {last} checkpoints, all but the last one of multiples of"
            f" {interval} steps; `keep_checkpoint_max` keeps more. Received: {found}"
        )
    objective = load_objective(model_dir)
    sums = [np.zeros(variable.shape) for variable in objective.variables]
    for step in steps:
        restore(tf.train.Checkpoint(objective=objective), model_dir, step)
        for total, variable in zip(sums, objective.variables, strict=True):
            total += variable.numpy()
    for total, variable in zip(sums, objective.variables, strict=True):
        variable.assign(total / last)
    vocabulary = recorded_vocabulary(model_dir)
    mean = Conversion(
        load_config(model_dir),
        hparams,
        vocabulary,
        objective,
        step=steps[-1],
        data_offset=recorded_offset(model_dir),
    )
    about: dict[str, Any] = {"source": "average", "input": storage.abspath(model_dir)}
    about |= {"steps": steps, "max_seq_length": trained_length(model_dir)}
    with new_folder(output) as new:
        save(mean, new, about, model_dir)
    return steps


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "output"])
    app.run(main_with_clear_errors(main))

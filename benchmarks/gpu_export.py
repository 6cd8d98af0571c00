"""Writes whole pre-training steps as XLA programs, for benchmarks.exported. Imports TensorFlow.

A step, as run_pretraining.py takes it with XLA, goes into a folder of its own:

- step.hlo.gz: the program, not yet optimised and for no device in particular.
- step.json: its sizes, parameters and results, and TensorFlow's own losses, to check it by.
- values.npz: the initial values of those parameters that step.json does not describe.

The program's parameters are the features and then the variables: weights, the optimizer's slots,
its counter and its rate. Its results are the metrics and then the variables' new values, in the
same order. Weights are drawn anew, from seeds that step.json names, so that the base size takes
2 MB in place of 1.3 GB.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
from typing import Any

import numpy as np
import tensorflow as tf

import files
from benchmarks.exported import initial_value
from benchmarks.ours import step_features, step_flops, step_hparams, step_trainer
from pretrain.hparams import PretrainingHParams, encoder_config
from training.checkpointing import git_commit
from training.loop import Trainer
from training.optimizer import WarmupTimesDecay

# Without warm-up, so that the first update already shows in the second loss.
SCHEDULE = WarmupTimesDecay(1e-4, total_steps=10**6, warmup_steps=0)


def build(
    size: str, batch: int, length: int, precision: str = "float32", **hparams: Any
) -> tuple[PretrainingHParams, Trainer, dict[str, tf.Tensor]]:
    """The trainer whose step is written, and the features of a batch (no padding).

    Args:
        size: of the encoder.
        batch: B.
        length: S.
        precision: "float32" or "mixed_bfloat16".
        **hparams: further hyper-parameters.

    Returns:
        The resolved hyper-parameters, the trainer, and int32 [B, S] features.
    """
    resolved = step_hparams(size, batch, length, precision, **hparams)
    trainer = step_trainer(resolved, SCHEDULE)
    features = {name: tf.constant(value) for name, value in step_features(resolved).items()}
    return resolved, trainer, features


def export(
    folder: str,
    hparams: PretrainingHParams,
    trainer: Trainer,
    features: dict[str, tf.Tensor],
    check_steps: int = 0,
) -> list[tf.Variable]:
    """Writes the step, draws the trainer's weights anew, then takes `check_steps` steps.

    Args:
        folder: made if it is missing.
        hparams: resolved hyper-parameters.
        trainer: not yet used.
        features: of the one batch that the step will see.
        check_steps: how many of TensorFlow's losses to write. They are computed op by op.

    Returns:
        The variables, in the order of the program's parameters and results.
    """
    step = tf.function(trainer._replica_step_eager, jit_compile=True)
    concrete = step.get_concrete_function(features)
    variables = _captured_variables(concrete, trainer)
    values = [value.numpy() for value in (*tf.nest.flatten(features), *variables)]
    names = [*sorted(features), *(variable.name for variable in variables)]
    parameters = [_describe(name, v, seed) for seed, (name, v) in enumerate(zip(names, values))]
    stored = {p["name"]: v for p, v in zip(parameters, values) if not {"fill", "draw"} & {*p}}
    for variable, parameter in zip(variables, parameters[len(features) :]):
        variable.assign(initial_value(parameter, stored))

    os.makedirs(folder, exist_ok=True)
    program = step.experimental_get_compiler_ir(features)(stage="hlo_serialized")
    with files.replacing(f"{folder}/step.hlo.gz") as temporary, open(temporary, "wb") as file:
        file.write(gzip.compress(program))
    with files.replacing(f"{folder}/values.npz") as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **stored)
    plain_step = tf.function(trainer._replica_step_eager)
    description = {
        **_sizes(hparams),
        "tensorflow": tf.__version__,
        "commit": git_commit(),
        "metrics": sorted(concrete.structured_outputs),
        "losses": [float(plain_step(features)["loss"][0]) for _ in range(check_steps)],
        "num_features": len(features),
        "parameters": parameters,
    }
    files.write_json(f"{folder}/step.json", description)
    return variables


def _captured_variables(concrete, trainer: Trainer) -> list[tf.Variable]:
    """The variables of the step, which XLA takes, and returns, in the order of their capture."""
    known = (*concrete.variables, *trainer.optimizer.variables)
    by_handle = {id(variable.handle): variable for variable in known}
    return [by_handle[id(handle)] for handle in concrete.captured_inputs]


def _describe(name: str, value: np.ndarray, seed: int) -> dict[str, Any]:
    """A parameter, and in few words its value if there are any for it (see `initial_value`)."""
    described = {"name": name, "shape": list(value.shape), "dtype": str(value.dtype)}
    if (value == value.flat[0]).all():
        return {**described, "fill": value.flat[0].item()}
    if np.issubdtype(value.dtype, np.floating):  # drawn with mean 0, as all our weights are
        return {**described, "draw": {"seed": seed, "deviation": float(value.std())}}
    return described


def _sizes(hparams: PretrainingHParams) -> dict[str, Any]:
    """What the program is for."""
    config = encoder_config(hparams, hparams.vocab_size)
    return {
        "size": hparams.model_size,
        "precision": hparams.precision,
        "batch": hparams.train_batch_size,
        "length": hparams.max_seq_length,
        "flops": step_flops(hparams),
        "fields": dataclasses.asdict(config),
        "generator_fields": dataclasses.asdict(hparams.objective.generator_config(config)),
    }

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
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import files
from benchmarks.exported import initial_value
from benchmarks.ours import step_features, step_flops, step_hparams, step_trainer
from pretrain.hparams import encoder_config
from training.loop import Trainer
from training.model_directory import git_commit
from training.optimizer import WarmupTimesDecay

# Without warm-up, so that the first update already shows in the second loss.
SCHEDULE = WarmupTimesDecay(1e-4, total_steps=10**6, warmup_steps=0)


class Exported(NamedTuple):
    """What was written: the trainer, its features, int32 [B, S], and variables in their order."""

    trainer: Trainer
    features: dict[str, tf.Tensor]
    variables: list[tf.Variable]


def export(
    folder: str,
    size: str,
    batch: int,
    length: int,
    precision: str = "float32",
    check_steps: int = 0,
    **others: Any,
) -> Exported:
    """Writes the step of a new network, on a batch without padding.

    Args:
        check_steps: how many of TensorFlow's losses to write. They are computed op by op.
    """
    hparams = step_hparams(size, batch, length, precision, **others)
    trainer = step_trainer(hparams, SCHEDULE)
    features = {name: tf.constant(value) for name, value in step_features(hparams).items()}
    step = tf.function(trainer._replica_step_fn, jit_compile=True)
    concrete = step.get_concrete_function(features)
    known = (*concrete.variables, *trainer.optimizer.variables)
    by_handle = {id(variable.handle): variable for variable in known}
    # XLA takes, and returns, them in the order of their capture.
    variables = [by_handle[id(handle)] for handle in concrete.captured_inputs]
    values = [value.numpy() for value in (*tf.nest.flatten(features), *variables)]
    names = [*sorted(features), *(variable.name for variable in variables)]
    parameters = [_describe(name, v, seed) for seed, (name, v) in enumerate(zip(names, values))]
    stored = {p["name"]: v for p, v in zip(parameters, values) if not {"fill", "draw"} & {*p}}
    for variable, parameter in zip(variables, parameters[len(features) :]):
        variable.assign(initial_value(parameter, stored))

    os.makedirs(folder, exist_ok=True)
    with gzip.open(f"{folder}/step.hlo.gz", "wb") as file:
        file.write(step.experimental_get_compiler_ir(features)(stage="hlo_serialized"))
    np.savez_compressed(f"{folder}/values.npz", **stored)
    plain_step = tf.function(trainer._replica_step_fn)
    config = encoder_config(hparams, hparams.vocab_size)
    description = {
        **{"size": size, "precision": precision, "batch": batch, "length": length},
        "flops": step_flops(hparams),
        "fields": dataclasses.asdict(config),
        "generator_fields": dataclasses.asdict(hparams.objective.generator_config(config)),
        "tensorflow": tf.__version__,
        "commit": git_commit(),
        "metrics": sorted(concrete.structured_outputs),
        "losses": [float(plain_step(features)["loss"][0]) for _ in range(check_steps)],
        "num_features": len(features),
        "parameters": parameters,
    }
    files.write_json(f"{folder}/step.json", description)  # last: it marks a whole folder
    return Exported(trainer, features, variables)


def _describe(name: str, value: np.ndarray, seed: int) -> dict[str, Any]:
    """A parameter, with its value where few words say it (see `initial_value`)."""
    described = {"name": name, "shape": list(value.shape), "dtype": str(value.dtype)}
    if (value == value.flat[0]).all():
        return {**described, "fill": value.flat[0].item()}
    if np.issubdtype(value.dtype, np.floating):  # drawn with mean 0, as all our weights are
        return {**described, "draw": {"seed": seed, "deviation": float(value.std())}}
    return described

"""Writes a program of benchmarks.programs as XLA's HLO, on a machine with a CPU alone.

    python -m benchmarks.program_export FILE '{"system": "ConvBERT", ...}'

The program's parameters are its inputs and then the variables, its results likewise, as in
benchmarks.gpu_export; nothing in it is optimized yet, and nothing is of a device in particular but
the forms of the kernels, which `Program.form` says.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf

from benchmarks.gpu_export import SCHEDULE
from benchmarks.ours import step_features, step_hparams, step_trainer
from benchmarks.programs import PRETRAINING, Program, systems
from model.kernels import for_accelerator
from training.loop import Evaluator

# A function, and the arguments that say its shapes.
Traced = tuple[Callable, tuple[Any, ...]]


def export(path: str, program: Program) -> None:
    """Writes a program as a serialised HloModuleProto."""
    forms = {"accelerator": for_accelerator, "cpu": contextlib.nullcontext}[program.form]
    with forms():
        function, arguments = traced(program)
        compiled = tf.function(function, jit_compile=True, autograph=False)
        hlo = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized")
    with open(path, "wb") as file:
        file.write(hlo)


def traced(program: Program) -> Traced:
    """What is compiled."""
    hparams = step_hparams(
        program.size,
        program.batch,
        program.length,
        program.precision,
        **_merged(systems()[program.system], program.overrides),
    )
    if program.kind == PRETRAINING:
        return _pretraining(program, hparams)
    raise NotImplementedError(program.kind)


def _merged(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Both, with the objects among them merged."""
    merged = {**values, **others}
    for name in set(values) & set(others):
        if isinstance(values[name], dict):
            merged[name] = {**values[name], **others[name]}
    return merged


def _pretraining(program: Program, hparams) -> Traced:
    """A step, or the metrics of a held-out batch."""
    trainer = step_trainer(hparams, SCHEDULE)
    features = {name: tf.constant(value) for name, value in step_features(hparams).items()}
    if program.phase == "train":
        return trainer._replica_step_fn, (features,)
    evaluator = Evaluator(trainer.objective, None, seed=0, strategy=trainer.strategy)
    return evaluator._replica_step, (features, tf.constant(0, tf.int64))


if __name__ == "__main__":
    export(sys.argv[1], Program(**json.loads(sys.argv[2])))

"""Writes what training and serving compute as XLA programs, for benchmarks.compiled.

A program is made for no device in particular, but of the forms that this project takes on GPUs and
TPUs (see `model.kernels.for_accelerator`). Its parameters are the features and then the variables.
Imports TensorFlow.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.ours import step_features, step_hparams, step_trainer
from model.kernels import for_accelerator
from training.loop import Evaluator
from training.optimizer import WarmupTimesDecay

_SCHEDULE = WarmupTimesDecay(1e-4, total_steps=10**6, warmup_steps=10**4)


def write_pretraining(
    path: str, phase: str, size: str, batch: int, length: int, precision: str, **hparams: Any
) -> None:
    """A whole pre-training step ("train") or a batch of an evaluation ("eval").

    Args:
        path: of the file, gzip of a serialized HloModuleProto.
        phase: "train" or "eval".
        size: of the encoder.
        batch: B, of one core.
        length: S.
        precision: "float32" or "mixed_bfloat16".
        **hparams: further hyper-parameters, such as `objective`.
    """
    hparams = step_hparams(size, batch, length, precision, **hparams)
    trainer = step_trainer(hparams, _SCHEDULE)
    function, arguments = trainer._replica_step_fn, [_tensors(step_features(hparams))]
    if phase == "eval":
        evaluator = Evaluator(trainer.objective, None, seed=0, strategy=trainer.strategy)
        function, arguments = evaluator._replica_step, [*arguments, tf.constant(0, tf.int64)]
    _write(path, function, arguments)


def _tensors(arrays: dict[str, Any]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value) for name, value in arrays.items()}


def _write(path: str, function: Callable, arguments: list) -> None:
    compiled = tf.function(function, jit_compile=True, autograph=False)
    with for_accelerator():
        program = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized")
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(program)

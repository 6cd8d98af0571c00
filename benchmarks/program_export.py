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
import tempfile
import types
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf
import tf_keras

from benchmarks.gpu_export import SCHEDULE
from benchmarks.made_up_tasks import made_up_task
from benchmarks.ours import step_features, step_hparams, step_trainer
from benchmarks.ours_finetuning import networks
from benchmarks.programs import PRETRAINING, Program, systems
from benchmarks.replicas import Replicas
from benchmarks.texts import made_up_vocabulary
from finetune.batches import TrainingBatches
from finetune.hparams import resolve_hparams
from finetune.task_data import load_task_data
from model import EncoderConfig
from model.kernels import for_accelerator
from pretrain.hparams import encoder_config
from training.distribution import own_rows
from training.loop import Evaluator, Trainer

# A function, and the arguments that say its shapes.
Traced = tuple[Callable, tuple[Any, ...]]


def export(path: str, program: Program) -> None:
    """Writes a program as a serialised HloModuleProto."""
    of_accelerator = program.form == "accelerator"
    with for_accelerator(program.platform) if of_accelerator else contextlib.nullcontext():
        function, arguments = traced(program)
        if program.replicas > 1:
            function, arguments = _of_a_replica(function, program.replicas), (0, *arguments)
        compiled = tf.function(function, jit_compile=True, autograph=False)
        arguments = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        hlo = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized")
    with open(path, "wb") as file:
        file.write(hlo)


def _of_a_replica(function: Callable, count: int) -> Callable:
    """The same within a replica, whose number is the first argument."""

    def replica(number, *arguments):
        with Replicas(count, number):
            return function(*arguments)

    return replica


def traced(program: Program) -> Traced:
    """What is compiled."""
    hparams = step_hparams(
        program.size,
        program.batch * program.replicas,
        program.length,
        program.precision,
        **_merged(systems()[program.system], program.overrides),
    )
    if program.kind == PRETRAINING:
        return _pretraining(program, hparams)
    return _finetuning(program, encoder_config(hparams, hparams.vocab_size))


def _merged(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Both, with the objects among them merged."""
    merged = {**values, **others}
    for name in set(values) & set(others):
        if isinstance(values[name], dict):
            merged[name] = {**values[name], **others[name]}
    return merged


def _pretraining(program: Program, hparams) -> Traced:
    """A step, or the metrics of a held-out batch."""
    trainer = _replicated(step_trainer(hparams, SCHEDULE), program)
    features = {name: tf.constant(value) for name, value in step_features(hparams).items()}
    if program.phase == "train":
        return trainer._replica_step_fn, (features,)
    strategy = tf.distribute.get_strategy()
    evaluator = _replicated(Evaluator(trainer.objective, None, seed=0, strategy=strategy), program)
    return evaluator._replica_step, (features, tf.constant(0, tf.int64))


def _replicated(loop: Trainer | Evaluator, program: Program) -> Trainer | Evaluator:
    """The same, knowing of the program's replicas; inputs are the global batch, as always."""
    loop.strategy = types.SimpleNamespace(num_replicas_in_sync=program.replicas)
    return loop


def _finetuning(program: Program, config: EncoderConfig) -> Traced:
    """A step, or predictions, of a made-up task."""
    batch = program.batch * program.replicas
    with tempfile.TemporaryDirectory() as folder:
        count = max(batch, 4)  # two examples of multiple choice, of both labels
        task, values = made_up_task(program.kind, count, program.length, folder)
        values |= {"precision": program.precision, "length_buckets": False}
        values |= program.task_hparams
        hparams = resolve_hparams(values | {"train_batch_size": batch}, task, config)
        words = made_up_vocabulary(config.vocab_size)
        data = load_task_data(task, folder, words, hparams, cache_dir=None)
    tf_keras.mixed_precision.set_global_policy(program.precision)
    objective, optimizer = networks(data.task, config, hparams)
    batches = TrainingBatches(
        data.train,
        batch,
        seed=0,
        max_seq_length=program.length,
        length_buckets=False,
        group_size=task.plugin.group_size(data.task),
    )
    features = next(iter(batches()))
    if program.phase == "infer":
        return lambda part: objective.predict(own_rows(part)), (features,)
    strategy = tf.distribute.get_strategy()
    trainer = Trainer(objective, optimizer, batches, seed=0, strategy=strategy)
    return _replicated(trainer, program)._replica_step_fn, (features,)


if __name__ == "__main__":
    export(sys.argv[1], Program(**json.loads(sys.argv[2])))

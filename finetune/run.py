"""What run_finetuning.py does once its flags are read and right: all that needs TensorFlow."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

import tensorflow as tf
import tf_keras

from data.vocabulary import Vocabulary
from errors import InputError, LossNotFinite, warn
from finetune.grid import folder_name, setting_of
from finetune.hparams import FinetuningHParams, RunSettings
from finetune.report import summary_line, write_report
from finetune.settings import Settings, saved_hparams
from finetune.sweep import run_all, with_seed
from finetune.task import Task
from finetune.task_data import load_task_data
from finetune.trial import Context, Trial
from model import Backbone, BackboneConfig, build_backbone
from model.sizes import size_of
from pretrain.load import load_encoder
from training.checkpointing import latest_checkpoint
from training.distribution import create_strategy


def finetune(settings: Settings, config: BackboneConfig, vocabulary: Vocabulary) -> None:
    """Runs -> report. Reads all files before the first run.

    Args:
        settings: what to do.
        config: of the encoder.
        vocabulary: of the model.

    Raises:
        InputError: model and data do not fit together.
        LossNotFinite: some runs diverged; the others are in the report.
    """
    tf.get_logger().setLevel("ERROR")  # it warns of tracing again; every run traces its own step
    strategy = create_strategy(settings.run.strategy)
    create_encoder = encoder_creator(settings, config)
    trials = []
    for task in settings.tasks:
        trials += plan_trials(task, settings, config, vocabulary)
    check_batch_sizes(trials, settings.run, strategy)
    warn_about_compiling(settings.run)
    tf_keras.mixed_precision.set_global_policy(trials[0].hparams.precision)
    context = Context(
        settings.run,
        strategy,
        vocabulary,
        create_encoder,
        about_model(settings.model_dir, config),
        {"pretraining": saved_hparams(settings.model_dir)},
        config,
        checkpoint_digest(settings),
        settings.show_errors,
    )
    results, stopped = run_all(trials, context, train=settings.train)
    if results:
        print(summary_line(results))
        print(f"report: {write_report(settings.output_dir)}")
    if stopped:
        raise LossNotFinite("\n".join(stopped))


def about_model(model_dir: str, config: BackboneConfig) -> dict[str, Any]:
    """The model's name, and its size if it has the architecture of a named one, for the report."""
    parts = os.path.abspath(model_dir).split(os.sep)
    name = "/".join(parts[-3:] if parts[-1].startswith("trial_") else parts[-1:])
    return {"model": name, "model_size": size_of(config)}


def checkpoint_digest(settings: Settings) -> str | None:
    """SHA-256 that tells the encoder's weights from others; None where no run takes them."""
    if not settings.takes_weights:
        return None
    path = latest_checkpoint(settings.model_dir) + ".index"  # holds a checksum of every tensor
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def plan_trials(
    task: Task,
    settings: Settings,
    config: BackboneConfig,
    vocabulary: Vocabulary,
) -> list[Trial]:
    """The runs of a task: every setting of the grid, every seed."""
    trials, loaded = [], {}
    cached = settings.run.use_tfrecords_if_existing
    cache_dir = os.path.join(settings.output_dir, "tokenized") if cached else None
    for swept, hparams in settings.points(task, config):
        warn_about_length(task, hparams, settings.model_dir)
        shape = tuple(getattr(hparams, name) for name in task.plugin.shaping)
        if shape not in loaded:
            loaded[shape] = load_task_data(
                task,
                settings.data_dir,
                vocabulary,
                hparams,
                cache_dir=cache_dir,
                train=settings.train,
                test=settings.run.write_test_outputs,
            )
        setting = setting_of(hparams, swept)
        folder = os.path.join(settings.output_dir, task.name, folder_name(setting, hparams.init))
        for number in range(settings.run.num_trials):
            trial = os.path.join(folder, f"trial_{number}")
            own = with_seed(hparams, number)
            trials.append(Trial(trial, number, setting, own, loaded[shape]))
    return trials


def warn_about_length(task: Task, hparams: FinetuningHParams, model_dir: str) -> None:
    """Says when a task uses positions that pre-training never saw."""
    seen = saved_hparams(model_dir).get("max_seq_length")
    if seen and hparams.max_seq_length > seen and hparams.init == "pretrained":
        print(
            f"{task.name}: `max_seq_length` is {hparams.max_seq_length}, but pre-training saw only"
            f" the first {seen} positions",
            file=sys.stderr,
        )


def check_batch_sizes(
    trials: list[Trial], run: RunSettings, strategy: tf.distribute.Strategy
) -> None:
    """Rejects batches that the devices cannot share evenly, in whole groups of sequences."""
    devices = strategy.num_replicas_in_sync
    for trial in trials:
        group = trial.data.task.plugin.group_size(trial.data.task)
        for name, size in (
            ("train_batch_size", trial.hparams.train_batch_size),
            ("eval_batch_size", run.eval_batch_size),
        ):
            if size % (devices * group):
                groups = f" and the {group} sequences of an example" if group > 1 else ""
                raise InputError(
                    f"`{name}` should be divisible by the {devices} devices{groups}. "
                    f"Received: {size}"
                )


def warn_about_compiling(run: RunSettings) -> None:
    """Says what --xla costs where it saves nothing."""
    if run.xla and not tf.config.list_physical_devices("GPU"):
        warn(
            "XLA on a CPU compiles the training step anew for every length of batch, for minutes"
            ' each; do without --xla, or set "length_buckets" to false for one length'
        )


def encoder_creator(settings: Settings, config: BackboneConfig):
    """A function that makes a run's encoder: pre-trained or random, with its own dropout.

    Raises:
        InputError: the checkpoint does not hold the encoder; found here, before data is read.
    """
    if settings.takes_weights:
        load_encoder(settings.model_dir)

    def create(hparams: FinetuningHParams) -> Backbone:
        own = config.replace(
            hidden_dropout_prob=hparams.hidden_dropout_prob,
            attention_probs_dropout_prob=hparams.attention_probs_dropout_prob,
        )
        if hparams.init == "random":
            return build_backbone(own)
        return load_encoder(settings.model_dir, own)

    return create

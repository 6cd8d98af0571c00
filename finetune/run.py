"""Fine-tuning as `run_finetuning.py` and `convbert.fine_tune` ask for it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras

import storage
from data.vocabulary import Vocabulary
from errors import LossNotFinite, decorating, warn
from finetune.batches import FEW_LENGTHS, slots
from finetune.grid import folder_name, setting_of
from finetune.hparams import FinetuningHParams, RunSettings
from finetune.report import summary_line, write_report
from finetune.settings import Settings, load_model, saved_hparams
from finetune.sweep import estimate, run_all
from finetune.task import Task
from finetune.task_data import load_task_data
from finetune.trial import Context, Trial
from model import Backbone, BackboneConfig, build_backbone
from model.sizes import size_of
from pretrain.load import load_encoder, restore_encoder
from settings import check_setting
from training import devices, workers
from training.checkpointing import latest_checkpoint
from training.distribution import create_strategy, micro_batches
from training.model_directory import HPARAMS_FILE, read_record


@contextlib.contextmanager
def fine_tuned(
    settings: Settings, worker_timeout: float = workers.TIMEOUT, *, dry_run: bool = False
) -> Iterator[dict[str, dict[str, Any]]]:
    """Runs what was asked for, and keeps the output folder for the block.

    Yields the results of the runs by folder.

    Args:
        settings: what to run.
        worker_timeout: seconds to wait for the other workers.
        dry_run: print the number of runs and steps and the time they take, and yield no results.

    Raises:
        InputError: what was asked for cannot be run, or another process uses the folder.
        LossNotFinite: some runs diverged; the others are in the report.
    """
    config, vocabulary = load_model(settings)
    with workers.at_work(settings.run.strategy, settings.output_dir, worker_timeout):
        yield finetune(settings, config, vocabulary, dry_run=dry_run)


def finetune(
    settings: Settings, config: BackboneConfig, vocabulary: Vocabulary, *, dry_run: bool = False
) -> dict[str, dict[str, Any]]:
    """Runs -> report. Reads all files before the first run. With `dry_run`, prints an estimate.

    Returns:
        Folder -> contents of `result.json`, of every run that was asked for.

    Raises:
        InputError: model and data do not fit together.
        LossNotFinite: some runs diverged; the others are in the report.
    """
    tf.get_logger().setLevel("ERROR")  # it warns of tracing again; a run may trace its own step
    strategy = create_strategy(settings.run.strategy, settings.run.tpu)
    settings = dataclasses.replace(settings, device=_fast_values(settings, config, strategy))
    if settings.takes_weights:
        load_encoder(settings.model_dir)  # or it is missed only after data has been read
    saved = saved_hparams(settings.model_dir)
    trials = []
    for task in settings.tasks:
        trials += _plan_trials(task, settings, config, vocabulary, saved.get("max_seq_length"))
    _check_batch_sizes(trials, settings.run, strategy.num_replicas_in_sync)
    if settings.run.xla and devices.found(strategy).kind == "CPU":
        warn(
            "XLA on a CPU compiles the training step anew for every length of batch, for minutes"
            ' each; do without --xla, or set "length_buckets" to few lengths, such as [64, 128]'
        )
    tf_keras.mixed_precision.set_global_policy(trials[0].hparams.precision)
    parts = storage.abspath(settings.model_dir).split(os.sep)
    name = "/".join(parts[-3:] if parts[-1].startswith("trial_") else parts[-1:])
    objective = saved.get("objective")
    context = Context(
        settings.run,
        strategy,
        vocabulary,
        functools.partial(_random_encoder, config),
        functools.partial(restore_encoder, model_dir=settings.model_dir),
        {"model": name, "model_size": size_of(config, objective), "objective": objective},
        {"pretraining": saved},
        config,
        _checkpoint_digest(settings),
        settings.show_errors,
    )
    if dry_run:
        print(estimate(trials, context))
        return {}
    results, stopped = run_all(trials, context, train=settings.train)
    if results and workers.is_chief():
        with decorating("the report"):
            print(summary_line(results))
            print(f"report: {write_report(settings.output_dir)}")
    if stopped:
        raise LossNotFinite("\n".join(stopped))
    return {trial.folder: result for trial, result in zip(trials, results, strict=True)}


def _fast_values(
    settings: Settings, config: BackboneConfig, strategy: tf.distribute.Strategy
) -> dict[str, Any]:
    """The hyper-parameters that are not said and devices decide; runs resume with their own.

    Whole-step XLA is not among them: it compiles for each length of batch, which takes longer than
    most fine-tunings.
    """
    device = devices.found(strategy)
    fast = {k: v for k, v in devices.defaults(device).items() if k == "precision"}
    if device.kind == "TPU" and not config.visible_padding:
        fast["length_buckets"] = FEW_LENGTHS
    said = {**settings.recipe, **settings.given, **settings.grid}
    for values in settings.per_task.values():
        said |= values
    recorded: dict[str, Any] = {}
    for task in settings.tasks:
        points = storage.matching(os.path.join(settings.output_dir, task.name), "*")
        trials = (trial for point in points for trial in storage.matching(point, "trial_*"))
        if fast and (trial := next(filter(_is_recorded, trials), None)):
            recorded = read_record(trial)["hparams"] | recorded
    return devices.chosen(device, fast, said, recorded)


def _is_recorded(folder: str) -> bool:
    return storage.exists(os.path.join(folder, HPARAMS_FILE))


def _checkpoint_digest(settings: Settings) -> str | None:
    """SHA-256 that tells the encoder's weights from others; None where no run takes them."""
    if not settings.takes_weights:
        return None
    path = latest_checkpoint(settings.model_dir) + ".index"  # holds a checksum of every tensor
    with storage.open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _plan_trials(
    task: Task,
    settings: Settings,
    config: BackboneConfig,
    vocabulary: Vocabulary,
    trained_length: int | None,
) -> list[Trial]:
    """The runs of a task: every setting of the grid, every seed."""
    trials, loaded = [], {}
    for swept, hparams in settings.points(task, config):
        length = hparams.max_seq_length
        if trained_length and length > trained_length and hparams.init == "pretrained":
            print(
                f"{task.name}: `max_seq_length` is {length}, but pre-training saw only the first"
                f" {trained_length} positions",
                file=sys.stderr,
            )
        shaping = (*task.plugin.shaping, "max_train_examples")
        shape = tuple(getattr(hparams, name) for name in shaping)
        if shape not in loaded:
            loaded[shape] = load_task_data(
                task,
                settings.data_dir,
                vocabulary,
                hparams,
                train=settings.train,
                test=settings.run.write_test_outputs,
            )
        task.plugin.check_hparams(loaded[shape].task, hparams, config)  # whose labels are known
        setting = setting_of(hparams, swept)
        folder = os.path.join(settings.output_dir, task.name, folder_name(setting, hparams.init))
        for number in range(settings.run.num_trials):
            trial = os.path.join(folder, f"trial_{number}")
            own = dataclasses.replace(hparams, seed=hparams.seed + number)
            trials.append(Trial(trial, number, setting, own, loaded[shape]))
    return trials


def _check_batch_sizes(trials: list[Trial], run: RunSettings, devices: int) -> None:
    """Rejects batches that the devices cannot share evenly, in whole groups of sequences."""
    for trial in trials:
        kind, B = trial.data.task.plugin, trial.hparams.train_batch_size
        group = each = kind.group_size(trial.data.task)
        if trial.data.train is not None and kind.whole_examples(trial.hparams):
            group = slots(trial.data.train, B)  # of training alone
        for owner, name, own in (
            (trial.hparams, "train_batch_size", group),
            (run, "eval_batch_size", each),
        ):
            fits = getattr(owner, name) % (devices * own) == 0
            expectation = f"a multiple of {devices * own}, {own} sequences on {devices} devices"
            check_setting(owner, fits, name, expectation)
        micro = run.micro_batch_size
        micro_batches(B, devices, micro)
        fits = micro is None or micro % group == 0
        check_setting(run, fits, "micro_batch_size", f"a multiple of {group}, whole examples")


def _random_encoder(config: BackboneConfig, hparams: FinetuningHParams) -> Backbone:
    """A run's encoder before it takes weights, with its own dropout."""
    return build_backbone(
        config.replace(
            hidden_dropout_prob=hparams.hidden_dropout_prob,
            attention_probs_dropout_prob=hparams.attention_probs_dropout_prob,
        )
    )

"""What run_pretraining.py does once its flags are read and right: all that needs TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from typing import Any

import numpy as np
import orbit
import tensorflow as tf
import tf_keras

import plugins
import stopping
import storage
from data.input_pipeline import clear_read_errors
from data.manifest import read_manifest, reject_other_data, settings_digest
from data.vocabulary import Vocabulary
from errors import InputError, decorating, warn
from model import EncoderConfig
from model.backbone import rematerialize
from pretrain.batches import Batches
from pretrain.build import build_objective, build_optimizer
from pretrain.continuation import Start, continued_values, plan_start
from pretrain.evaluation import evaluate, read_settings
from pretrain.hparams import (
    CONTINUE_FLAGS,
    CommandLine,
    PretrainingHParams,
    RunSettings,
    check_data,
    encoder_config,
    fitted_to,
    report_unused,
    resolve_hparams,
)
from pretrain.saved_settings import data_vocabulary, load_hparams, special_ids
from settings import check_setting, replace_checked
from training import checkpointing, devices, monitoring, workers
from training.distribution import create_strategy
from training.loop import Evaluator, Trainer
from training.memory import peak_memory_gib
from training.model_directory import (
    CHECKPOINT_FOLDER,
    HPARAMS_FILE,
    describe_run,
    read_record,
)
from training.objective import Objective

_ADVICE = "Choose another --model_dir (and --continue_from this one to start from its weights)."


def pretrain(
    command: CommandLine, hparam_values: dict[str, Any], run_values: dict[str, Any]
) -> None:
    """Hyper-parameters -> objective -> training loop. Checks all before writing any."""
    model_dir = command.model_dir
    vocabulary = data_vocabulary(command.data_dir, hparam_values.get("do_lower_case"))
    hparam_values = {**hparam_values, "do_lower_case": vocabulary.do_lower_case}
    hparam_values = continued_values(hparam_values, command)
    run = replace_checked(RunSettings(), run_values)
    strategy = create_strategy(run.strategy, run.tpu)  # before anything uses TensorFlow
    fast = fast_values(model_dir, strategy, hparam_values | run_values)
    hparam_values = hparam_values | {k: v for k, v in fast.items() if k == "precision"}
    run = dataclasses.replace(run, xla=fast.get("xla", run.xla))
    hparams = resolve_hparams(hparam_values, vocabulary.size)
    check_data(command.data_dir, hparams)
    report_unused(hparam_values, hparams.objective)
    warn_about_warmup(hparams)
    config = fitted_to(vocabulary, encoder_config(hparams, vocabulary.size))
    start = check_start(command, hparams, config, vocabulary)
    described = describe_hparams(command, hparams, vocabulary, start)
    checkpointing.check_run(model_dir, described, _ADVICE)
    size, micro = hparams.train_batch_size, run.micro_batch_size
    train_batches = Batches(command.data_dir, "train", hparams, size, strategy, micro)
    heldout_batches = None
    if command.do_eval:
        size = run.eval_batch_size or size
        heldout_batches = Batches(command.data_dir, "heldout", hparams, size, strategy, micro)
    files = train_batches.files + (heldout_batches.files if heldout_batches else [])
    tf_keras.utils.set_random_seed(hparams.seed)
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    with strategy.scope():
        objective = build_objective(hparams, config, special_ids(vocabulary))
        objective.begin_training(hparams.train_batch_size)
        optimizer = build_optimizer(hparams, objective)
    if run.rematerialize:
        rematerialize(objective)
    resumed = checkpointing.has_checkpoint(model_dir)
    manager = restore(command, objective, optimizer, run, start, strategy)
    if resumed:
        say_step(int(optimizer.iterations.numpy()), hparams.num_train_steps)
    command = dataclasses.replace(command, model_dir=workers.written(model_dir))
    settings = {"seed": hparams.seed, "strategy": strategy}
    count = train_batches.micro_batches
    trainer = Trainer(
        objective, optimizer, train_batches, xla=run.xla, micro_batches=count, **settings
    )
    count = heldout_batches.micro_batches if heldout_batches else 1
    if heldout_batches is not None:
        settings["derive"] = heldout_batches.derived_metrics
    evaluator = Evaluator(objective, heldout_batches, micro_batches=count, **settings)
    write_model_directory(command, described, run, config, vocabulary)
    with (
        contextlib.closing(trainer),
        clear_read_errors(files),
    ):
        run_controller(command, hparams, run, trainer, evaluator, manager)


def say_step(step: int, total: int) -> None:
    """Where a run goes on."""
    resuming = f"resuming from step {step} of {total}"
    workers.say(resuming if step < total else f"training is finished: step {step}")


def fast_values(
    model_dir: str, strategy: tf.distribute.Strategy, said: dict[str, Any]
) -> dict[str, Any]:
    """What is not said and devices decide: `precision` and `xla`. A run resumes with its own."""
    device, recorded = devices.found(strategy), {}
    if checkpointing.has_checkpoint(model_dir):
        hparams = read_record(model_dir)["hparams"]
        recorded = {name: hparams[name] for name in ("precision",) if name in hparams}
    return devices.chosen(device, devices.defaults(device), said, recorded)


def warn_about_warmup(hparams: PretrainingHParams) -> None:
    """Says when the learning rate never reaches its peak."""
    steps = hparams.num_train_steps - hparams.schedule_from_step
    if hparams.num_warmup_steps >= steps:
        warn(
            f"`num_warmup_steps` ({hparams.num_warmup_steps}) is not less than the {steps} steps of"
            f" training: the learning rate never comes near its peak of {hparams.learning_rate:g}"
        )


def without_training(
    command: CommandLine, hparam_values: dict[str, Any], run_values: dict[str, Any]
) -> None:
    """Reports on a model, and measures it first if asked to.

    The held-out records are those of --data_dir, the model's own data or other.
    """
    model_dir = command.model_dir
    hparam_values = continued_values(hparam_values, command)
    if command.do_eval:
        step = evaluate(model_dir, command.data_dir, hparam_values, run_values)
    else:
        read_settings(model_dir, hparam_values, run_values)  # for settings that are not the model's
        step = checkpointing.step_of(checkpointing.latest_checkpoint(model_dir))
    report(model_dir, load_hparams(model_dir)[0], step)


def check_start(
    command: CommandLine,
    hparams: PretrainingHParams,
    config: EncoderConfig,
    vocabulary: Vocabulary,
) -> Start | None:
    """Raises InputError where source, data and run do not fit; returns what --continue_from gives.

    None is returned where training starts from random weights, or resumes in `model_dir`.
    """
    model_dir = command.model_dir
    if checkpointing.has_checkpoint(model_dir):
        reject_other_data(model_dir, read_record(model_dir), command.data_dir)
        return None
    reject_lost_checkpoints(model_dir)
    if command.continue_from is None:
        fits = hparams.schedule_from_step == 0
        check_setting(hparams, fits, "schedule_from_step", "0 without --continue_from")
        return None
    return plan_start(command, hparams, config, vocabulary)


def reject_lost_checkpoints(model_dir: str) -> None:
    """Raises InputError where metrics tell of a checkpoint and there is none any more."""
    rows = monitoring.read_metrics(model_dir)
    if not rows or not storage.exists(os.path.join(model_dir, HPARAMS_FILE)):
        return
    last, interval = rows[-1]["step"], read_record(model_dir)["run_settings"]
    interval = interval.get("save_checkpoints_steps", last + 1)
    if last > interval:  # at the interval itself it may have been killed before it saved
        raise InputError(
            f"{model_dir}: training came to step {last}, as {monitoring.METRICS_FILE} says, but"
            f" there is no checkpoint in {CHECKPOINT_FOLDER}/. Restore them from a copy, choose"
            f" another --model_dir, or delete {monitoring.METRICS_FILE} to begin again"
        )


def describe_hparams(
    command: CommandLine, hparams: PretrainingHParams, vocabulary: Vocabulary, start: Start | None
) -> dict[str, Any]:
    """Everything that decides a run's weights."""
    model_dir = command.model_dir
    described = {**hparams.as_json(), "vocabulary": vocabulary.digest, **plugins.recorded()}
    data = settings_digest(read_manifest(command.data_dir))
    described |= {"data": data} if data else {}
    if start is not None:
        described["continue_optimizer"] = "carried" if start.carries_optimizer else "fresh"
    elif checkpointing.has_checkpoint(model_dir):  # it was decided when the run began
        decided = command.continue_optimizer or read_record(model_dir)["hparams"].get(
            "continue_optimizer"
        )
        described |= {"continue_optimizer": decided} if decided else {}
    return described


def restore(
    command: CommandLine,
    objective: Objective,
    optimizer: tf_keras.optimizers.Optimizer,
    run: RunSettings,
    start: Start | None,
    strategy: tf.distribute.Strategy,
) -> checkpointing.CheckpointManager:
    """Restores what is there, else what --continue_from gives; returns what saves checkpoints."""

    def initialize() -> None:
        if start is not None:
            start.restore(objective, optimizer)
            workers.say(start.describe())

    with strategy.scope():
        return checkpointing.create_manager(
            tf.train.Checkpoint(objective=objective, optimizer=optimizer),
            command.model_dir,
            step=optimizer.iterations,
            interval=run.save_checkpoints_steps,
            max_to_keep=run.keep_checkpoint_max,
            initialize=initialize,
        )


def write_model_directory(
    command: CommandLine,
    described: dict[str, Any],
    run: RunSettings,
    config: EncoderConfig,
    vocabulary: Vocabulary,
) -> None:
    """Makes the model directory self-describing; after all that may be wrong has been looked at."""
    settings = {**dataclasses.asdict(run), "data_dir": command.data_dir}
    settings |= {name: getattr(command, name) for name in CONTINUE_FLAGS}
    describe_run(command.model_dir, described, settings)
    config.save(command.model_dir)
    vocabulary.save(command.model_dir)


def run_controller(
    command: CommandLine,
    hparams: PretrainingHParams,
    run: RunSettings,
    trainer: Trainer,
    evaluator: Evaluator,
    manager: checkpointing.CheckpointManager,
) -> None:
    """Trains what is left to train, and evaluates with --do_eval."""
    model_dir = command.model_dir
    step = trainer.optimizer.iterations
    # orbit prints a block of text per loop; the bar and metrics.jsonl say the same, better.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        controller = orbit.Controller(
            global_step=step,
            trainer=trainer,
            evaluator=evaluator,
            strategy=trainer.strategy,
            steps_per_loop=run.iterations_per_loop,
            checkpoint_manager=manager,
        )
        resumed = manager.latest_checkpoint is not None
        log = monitoring.MetricsLog(model_dir, step, resumed=resumed)
        controller.eval_actions = (log.action("heldout"),)
        if int(step.numpy()) < hparams.num_train_steps:
            train(controller, hparams, run, log, evaluate=command.do_eval)
        elif command.do_eval:
            controller.evaluate(run.num_eval_steps)
    report(model_dir, hparams, int(step.numpy()))


def train(
    controller: orbit.Controller,
    hparams: PretrainingHParams,
    run: RunSettings,
    log: monitoring.MetricsLog,
    *,
    evaluate: bool,
) -> None:
    """Trains to the end, saving and evaluating at every multiple of `save_checkpoints_steps`."""
    step, total = controller.global_step, hparams.num_train_steps
    names = {"loss": "loss", **hparams.objective.bar}
    bar = monitoring.ProgressBar(total, step, hparams.train_batch_size, names)
    agree = workers.agree_to_stop
    try:
        at_checkpoint = int(step.numpy()) % run.save_checkpoints_steps == 0
        stopped_in = at_checkpoint and log.has("train") and not log.has("heldout")
        if evaluate and workers.gather({"stopped in": np.bool_(stopped_in)})[0]["stopped in"]:
            controller.evaluate(run.num_eval_steps)  # which it was stopped in
        while (now := int(step.numpy())) < total:
            multiple = (now // run.save_checkpoints_steps + 1) * run.save_checkpoints_steps
            with stopping.deferred("this loop of steps", agree) as stop_if_asked:
                controller.train_actions = (log.action("train"), bar, stop_if_asked)
                controller.train(min(multiple, total))  # ends with a checkpoint
            if evaluate:
                controller.evaluate(run.num_eval_steps)
    except stopping.Stopped:
        controller.save_checkpoint()
        workers.say(f"\nsaved at step {int(step.numpy())}")
        raise
    finally:
        bar.close()


def report(model_dir: str, hparams: PretrainingHParams, step: int) -> None:
    """Says where everything is and what was measured last; the chief alone does."""
    if not workers.is_chief():
        return
    names = ("loss", *hparams.objective.curves, "learning_rate")
    picture = None
    with decorating("the curves"):
        picture = monitoring.plot_curves(model_dir, names)
    curves = f" curves in {picture}," if picture else ""
    print(
        f"step {step}, model in {model_dir},{curves} peak memory {peak_memory_gib():.1f} GiB",
        file=sys.stderr,
    )
    for row in monitoring.read_metrics(model_dir)[-1:]:
        values = {k: v for k, v in row.items() if isinstance(v, float) and k != "time"}
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        print(f"{row['split']}: {shown}", file=sys.stderr)

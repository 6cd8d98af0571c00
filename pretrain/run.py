"""What run_pretraining.py does once its flags are read and right: all that needs TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from typing import Any

import orbit
import tensorflow as tf
import tf_keras

import stopping
from data.input_pipeline import clear_read_errors, pretraining_dataset, record_files
from data.manifest import read_manifest, refuse_other_data, settings_digest
from data.vocabulary import Vocabulary
from errors import InputError
from model import EncoderConfig
from pretrain.build import build_objective, build_optimizer
from pretrain.continuation import Start, continued_values, plan_start
from pretrain.evaluation import evaluate
from pretrain.hparams import (
    CONTINUE_FLAGS,
    CommandLine,
    PretrainingHParams,
    RunSettings,
    encoder_config,
    report_unused,
    resolve_hparams,
)
from pretrain.saved_settings import as_recorded_now, load_hparams, special_ids
from training import checkpointing, monitoring
from training.distribution import create_strategy
from training.hyperparameters import replace_checked
from training.loop import Evaluator, Trainer
from training.memory import peak_memory_gib
from training.model_directory import CHECKPOINT_FOLDER, HPARAMS_FILE, read_record
from training.objective import Objective


def pretrain(
    command: CommandLine,
    hparam_values: dict[str, Any],
    run_values: dict[str, Any],
    vocabulary: Vocabulary,
) -> None:
    """Hyper-parameters -> objective -> training loop. Checks all before writing any.

    Args:
        command: what to do, and where.
        hparam_values: fields of PretrainingHParams that are said.
        run_values: fields of RunSettings that are said.
        vocabulary: of the data.
    """
    model_dir = command.model_dir
    if command.continue_from:
        hparam_values = continued_values(
            hparam_values, command.continue_from, model_dir, command.additional_steps
        )
    hparams = resolve_hparams(hparam_values, vocabulary.size)
    report_unused(hparam_values, hparams.objective)
    warn_about_warmup(hparams)
    run = replace_checked(RunSettings(), run_values)
    strategy = create_strategy(run.strategy)  # before anything uses TensorFlow
    config = encoder_config(hparams, vocabulary.size)
    start = check_start(command, hparams, config, vocabulary)
    described = describe_hparams(command, hparams, vocabulary, start)
    checkpointing.check_run(model_dir, described, as_now=as_recorded_now)
    train_batches = RecordBatches(command.data_dir, "train", hparams, hparams.train_batch_size)
    heldout_batches = None
    if command.do_eval:
        size = run.eval_batch_size or hparams.train_batch_size
        heldout_batches = RecordBatches(command.data_dir, "heldout", hparams, size)

    for batches in filter(None, (train_batches, heldout_batches)):
        if batches.batch_size % strategy.num_replicas_in_sync:
            raise InputError(
                f"the {batches.split} batch should be divisible by the"
                f" {strategy.num_replicas_in_sync} devices. Received: {batches.batch_size}"
            )
    tf_keras.utils.set_random_seed(hparams.seed)
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    with strategy.scope():
        objective = build_objective(hparams, config, special_ids(vocabulary))
        optimizer = build_optimizer(hparams, objective)
    manager = restore(command, objective, optimizer, run, start, strategy)
    write_model_directory(command, described, run, config, vocabulary)
    trainer = Trainer(
        objective, optimizer, train_batches, seed=hparams.seed, strategy=strategy, xla=run.xla
    )
    evaluator = Evaluator(objective, heldout_batches, seed=hparams.seed, strategy=strategy)
    files = train_batches.files + (heldout_batches.files if heldout_batches else [])
    with clear_read_errors(files, hparams.max_seq_length, hparams.vocab_size):
        run_controller(command, hparams, run, trainer, evaluator, manager)


def warn_about_warmup(hparams: PretrainingHParams) -> None:
    """Says when the learning rate never reaches its peak."""
    steps = hparams.num_train_steps - hparams.schedule_from_step
    if hparams.num_warmup_steps >= steps:
        print(
            f"warning: `num_warmup_steps` ({hparams.num_warmup_steps}) is not less than the {steps}"
            " steps of training: the learning rate never comes near its peak of"
            f" {hparams.learning_rate:g}",
            file=sys.stderr,
        )


def evaluate_only(
    command: CommandLine, hparam_values: dict[str, Any], run_values: dict[str, Any]
) -> None:
    """Measures a finished model on the held-out records of --data_dir, its own data or other."""
    model_dir = command.model_dir
    if command.continue_from:
        hparam_values = continued_values(
            hparam_values, command.continue_from, model_dir, command.additional_steps
        )
    step = evaluate(model_dir, command.data_dir, hparam_values, run_values)
    report(model_dir, load_hparams(model_dir)[0], step)


class RecordBatches:
    """Creates the dataset of one split; looks at the files at once, so that errors come early.

    Args:
        data_dir: the data folder.
        split: "train" or "heldout".
        hparams: length, vocabulary and seed.
        batch_size: over all devices.
    """

    def __init__(self, data_dir: str, split: str, hparams: PretrainingHParams, batch_size: int):
        self.split, self.hparams, self.batch_size = split, hparams, batch_size
        try:
            self.files = record_files(data_dir, split)
            self()
        except InputError as error:
            hint = "; nothing is held out, so do without --do_eval" if split == "heldout" else ""
            raise InputError(f"{error}{hint}") from error

    def __call__(self, start_step: int = 0) -> tf.data.Dataset:
        """Training batches from a step on, or one pass over the held-out ones."""
        training = self.split == "train"
        return pretraining_dataset(
            self.files,
            batch_size=self.batch_size,
            max_seq_length=self.hparams.max_seq_length,
            vocab_size=self.hparams.vocab_size,
            seed=self.hparams.seed,
            start_step=start_step,
            shuffle=training,
            repeat=training,
            drop_remainder=training,
        )


def check_start(
    command: CommandLine,
    hparams: PretrainingHParams,
    config: EncoderConfig,
    vocabulary: Vocabulary,
) -> Start | None:
    """Refuses to start from what is not there or does not fit; returns what --continue_from gives.

    None is returned where training starts from random weights, or goes on in `model_dir`.
    """
    model_dir = command.model_dir
    manifest = read_manifest(command.data_dir) or {}
    if manifest.get("vocabulary_digest", vocabulary.digest) != vocabulary.digest:
        raise InputError(
            f"{command.data_dir}: vocab.txt is not the one the records were built with"
        )
    if not command.do_train:
        checkpointing.latest_checkpoint(model_dir)
    if checkpointing.has_checkpoint(model_dir):
        if command.do_train:
            refuse_other_data(model_dir, read_record(model_dir), command.data_dir)
        return None
    refuse_lost_checkpoints(model_dir)
    if command.continue_from is None:
        if hparams.schedule_from_step:
            raise InputError(
                "`schedule_from_step` should be 0 without --continue_from."
                f" Received: {hparams.schedule_from_step}"
            )
        return None
    steps, warmup = command.additional_steps, hparams.num_warmup_steps
    if steps is not None and warmup >= steps:
        raise InputError(
            f"`num_warmup_steps` should be less than --additional_steps {steps}. Received: {warmup}"
        )
    return plan_start(
        command.continue_from,
        hparams,
        config,
        vocabulary,
        optimizer=command.continue_optimizer,
        new_networks=command.new_networks,
    )


def refuse_lost_checkpoints(model_dir: str) -> None:
    """Raises InputError where metrics tell of a checkpoint and there is none any more."""
    rows = monitoring.read_metrics(model_dir)
    if not rows or not os.path.exists(os.path.join(model_dir, HPARAMS_FILE)):
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
    described = {**hparams.as_json(), "vocabulary": vocabulary.digest}
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
) -> checkpointing.CheckpointManager | None:
    """Restores what is there, else what --continue_from gives.

    Returns:
        What saves the next checkpoints; None without training, which takes the weights alone.
    """

    def initialize() -> None:
        if start is not None:
            start.restore(objective, optimizer)
            print(start.describe(), file=sys.stderr)

    with strategy.scope():
        if not command.do_train:
            weights = tf.train.Checkpoint(objective=objective)
            path = checkpointing.restore(weights, command.model_dir)
            optimizer.iterations.assign(checkpointing.checkpoint_step(path))
            return None
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
    checkpointing.describe_run(command.model_dir, described, settings)
    config.save(command.model_dir)
    vocabulary.save(command.model_dir)


def run_controller(
    command: CommandLine,
    hparams: PretrainingHParams,
    run: RunSettings,
    trainer: Trainer,
    evaluator: Evaluator,
    manager: checkpointing.CheckpointManager | None,
) -> None:
    """Trains and evaluates as the flags say."""
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
            summary_dir=os.path.join(model_dir, "train"),
            eval_summary_dir=os.path.join(model_dir, "heldout"),
        )
        log = monitoring.MetricsLog(model_dir, step)
        controller.eval_actions = (log.action("heldout"),)
        if command.do_train and int(step.numpy()) < hparams.num_train_steps:
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
    try:
        at_checkpoint = int(step.numpy()) % run.save_checkpoints_steps == 0
        if evaluate and at_checkpoint and log.has("train") and not log.has("heldout"):
            controller.evaluate(run.num_eval_steps)  # which it was stopped in
        while (now := int(step.numpy())) < total:
            multiple = (now // run.save_checkpoints_steps + 1) * run.save_checkpoints_steps
            with stopping.deferred("this loop of steps") as stop_if_asked:
                controller.train_actions = (log.action("train"), bar, stop_if_asked)
                controller.train(min(multiple, total))  # ends with a checkpoint
            if evaluate:
                controller.evaluate(run.num_eval_steps)
    except stopping.Stopped as stopped:
        controller.save_checkpoint()
        message = f"\n{stopped} at step {int(step.numpy())}; run the same command to go on"
        print(message, file=sys.stderr)
        sys.exit(stopped.status)
    finally:
        bar.close()


def report(model_dir: str, hparams: PretrainingHParams, step: int) -> None:
    """Says where everything is and what was measured last."""
    names = ("loss", *hparams.objective.curves, "learning_rate")
    picture = monitoring.plot_curves(model_dir, names)
    last = monitoring.read_metrics(model_dir)[-1:]
    print(
        f"step {step}, model in {model_dir}, curves in {picture},"
        f" peak memory {peak_memory_gib():.1f} GiB",
        file=sys.stderr,
    )
    for row in last:
        shown = {k: round(v, 4) for k, v in row.items() if isinstance(v, float) and k != "time"}
        print(f"{row['split']}: {shown}", file=sys.stderr)

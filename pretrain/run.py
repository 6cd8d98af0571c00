"""The parts of run_pretraining.py besides its loop: flags, checks, building, final report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras
from absl.flags import FlagValues

from convbert.common import plugins, storage
from convbert.common.errors import InputError, warn
from convbert.common.machine import peak_memory_gib
from convbert.common.settings import check_setting, present, read_json_object, typed
from convbert.data.input_pipeline import clear_read_errors
from convbert.data.manifest import reject_other_data, settings_digest
from convbert.data.vocabulary import Vocabulary
from convbert.model import BackboneConfig
from convbert.model.backbone import rematerialize
from convbert.pretrain.batches import Batches
from convbert.pretrain.continuation import Start, continued_values, data_offset, plan_start
from convbert.pretrain.evaluation import evaluate, read_settings
from convbert.pretrain.hparams import (
    CONTINUE_FLAGS,
    FLAG_NAMES,
    CommandLine,
    PretrainingHParams,
    encoder_config,
    report_unused,
    resolve_hparams,
    split_hparams,
    translate,
    with_length_of_data,
)
from convbert.pretrain.load import DATA_OFFSET, SpecialIds, data_vocabulary
from convbert.training import checkpointing, distribution, monitoring, workers
from convbert.training.distribution import create_strategy
from convbert.training.loop import Evaluator, Trainer
from convbert.training.run import Rollback, Training
from convbert.training.run_record import CHECKPOINT_FOLDER, HPARAMS_FILE, describe_run, read_record

_ADVICE = "Choose another --model_dir (and --continue_from this one to start from its weights)."
_RUN_FLAGS = ("strategy", "tpu", "xla", "micro_batch_size", "rematerialize")


def read_flags(flags: FlagValues) -> CommandLine:
    """Merges the recipe, --hparams and flags; later ones take precedence."""
    plugins.load(flags.plugins)
    given = translate(read_json_object(flags.hparams))
    values = translate(read_json_object(flags.recipe, "--recipe")) | given
    values.pop("about", None)  # a recipe's source, cost and expected score
    continued = {name: flags[name].value for name in CONTINUE_FLAGS}
    if flags.continue_from is None and flags.additional_steps is not None:
        raise InputError("--additional_steps is for continuing from a model with --continue_from")
    twice = {"num_train_steps", "schedule_from_step"} & set(given)
    if twice and flags.additional_steps is not None:
        raise InputError(f"--additional_steps sets `{min(twice)}`, so --hparams should not")
    hparams, run, ignored = split_hparams(values)
    does = {name: flags[name].value for name in FLAG_NAMES}
    for name in FLAG_NAMES:  # may be in the original's JSON; the command line takes precedence
        if name in values and not flags[name].present:
            does[name] = typed(name, values[name], bool)
    if ignored:
        print(f"ignored, use flags instead: {', '.join(ignored)}", file=sys.stderr)
    for target, names in ((hparams, ("seed", "precision")), (run, _RUN_FLAGS)):
        target.update({name: flags[name].value for name in names if flags[name].value is not None})
    if flags.continue_from is not None and not does["do_train"]:
        raise InputError("--continue_from is for training, so not for --nodo_train")
    if does["do_train"] and flags.continue_from is None:
        hparams = with_length_of_data(hparams, flags.data_dir)
    model_dir = flags.model_dir or os.path.join(flags.data_dir, "models", flags.model_name)
    folders = {"data_dir": flags.data_dir, "model_dir": model_dir}
    return CommandLine(**folders, **does, **continued, hparam_values=hparams, run_values=run)


@contextlib.contextmanager
def prepared(command: CommandLine) -> Iterator[Training]:
    """Yields a command's run, new or resumed; checks everything before it writes."""
    model_dir = command.model_dir
    vocabulary = data_vocabulary(command.data_dir, command.hparam_values.get("do_lower_case"))
    said = {**command.hparam_values, "do_lower_case": vocabulary.do_lower_case}
    said = continued_values(said, command)
    run = command.run_settings
    strategy = create_strategy(run.strategy, run.tpu)  # before anything uses TensorFlow
    fast = fast_values(model_dir, strategy, said | command.run_values)
    said |= {name: value for name, value in fast.items() if name == "precision"}
    run = dataclasses.replace(run, xla=fast.get("xla", run.xla))
    hparams = resolve_hparams(said, vocabulary.size)
    report_unused(said, hparams.objective)
    warn_about_optimizer(hparams)
    config = encoder_config(hparams, vocabulary.size)
    config = config.with_summary_last() if vocabulary.cls_is_last else config
    start = check_start(command, hparams, config, vocabulary)
    offset = data_offset(command, hparams)
    described = describe_hparams(command, hparams, vocabulary, offset)
    checkpointing.check_run(model_dir, described, _ADVICE)
    splits = ["train", "heldout"] if command.do_eval else ["train"]
    batches = [Batches(command.data_dir, split, hparams, run, strategy, offset) for split in splits]
    tf_keras.utils.set_random_seed(hparams.seed)
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    with strategy.scope():
        objective = hparams.build_objective(config, SpecialIds(vocabulary))
        optimizer = hparams.build_optimizer(objective)
        if run.rematerialize:
            rematerialize(objective)
        manager = checkpointing.create_manager(
            tf.train.Checkpoint(objective=objective, optimizer=optimizer),
            model_dir,
            step=optimizer.iterations,
            max_to_keep=run.keep_checkpoint_max,
            initialize=functools.partial(start.restore, objective, optimizer) if start else None,
        )
    step, total = int(optimizer.iterations.numpy()), hparams.num_train_steps
    if resumed := manager.latest_checkpoint is not None:
        resuming = f"resuming from step {step} of {total}"
        workers.say(resuming if step < total else f"training is finished: step {step}")
    written = workers.written(model_dir)
    rollback = Rollback(manager.checkpoint, model_dir, run.max_skipped_steps, resumed=resumed)
    describe_run(written, described, {**dataclasses.asdict(run), **command.recorded})
    config.save(written)
    vocabulary.save(written)
    trainer, evaluator = _loops(batches, objective, optimizer, run.xla, hparams.seed, strategy)
    with contextlib.closing(trainer), clear_read_errors([f for of in batches for f in of.files]):
        yield Training(
            model_dir=written,
            trainer=trainer,
            evaluator=evaluator,
            manager=manager,
            log=monitoring.MetricsLog(written, optimizer.iterations, begins=not resumed),
            total_steps=total,
            steps_per_loop=run.iterations_per_loop,
            interval=run.save_checkpoints_steps,
            num_eval_steps=run.num_eval_steps,
            progress_bar=functools.partial(_progress_bar, hparams, optimizer.iterations),
            rollback=rollback,
        )


def _loops(batches, objective, optimizer, xla, seed, strategy) -> tuple[Trainer, Evaluator | None]:
    """Returns what takes steps, and what evaluates if there are held-out batches."""
    train, *heldout = batches
    parts, given = train.micro_batches, {"seed": seed, "strategy": strategy}
    trainer = Trainer(objective, optimizer, train, xla=xla, micro_batches=parts, **given)
    found = (Evaluator(objective, of, micro_batches=of.micro_batches, **given) for of in heldout)
    return trainer, next(found, None)


def _progress_bar(hparams: PretrainingHParams, step: tf.Variable) -> monitoring.ProgressBar:
    names = {"loss": "loss", **hparams.objective.bar}
    size = present(hparams.train_batch_size)
    return monitoring.ProgressBar(hparams.num_train_steps, step, size, names)


def fast_values(
    model_dir: str, strategy: tf.distribute.Strategy, said: dict[str, Any]
) -> dict[str, Any]:
    """Returns `precision` and `xla` for the devices if not given. A run resumes with its own."""
    resumes = checkpointing.has_checkpoint(model_dir)
    recorded = read_record(model_dir)["hparams"] if resumes else {}
    return distribution.chosen_values(distribution.fast_values(strategy), said, recorded)


def warn_about_optimizer(hparams: PretrainingHParams) -> None:
    """Warns when the learning rate never reaches its peak, and of a decay that erases weights."""
    steps, warmup = hparams.num_train_steps - hparams.schedule_from_step, hparams.num_warmup_steps
    if warmup >= steps:
        warn(
            f"`num_warmup_steps` ({warmup}) is not less than the {steps} training steps: the"
            f" learning rate never comes near its peak of {hparams.learning_rate:g}"
        )
    if hparams.optimizer == "stable_adamw" and hparams.weight_decay_rate > 1e-3:
        warn(
            "stable_adamw takes the share `weight_decay_rate` of all weights in a step at the peak,"
            f" whatever the rate; ModernBERT has 1e-5. Received: {hparams.weight_decay_rate:g}"
        )


def without_training(command: CommandLine) -> tuple[str, int, dict[str, Any]]:
    """Evaluates a model if asked to, on its own or other data; returns `report`'s arguments."""
    model_dir, said = command.model_dir, (command.hparam_values, command.run_values)
    if command.do_eval:
        return model_dir, *evaluate(model_dir, command.data_dir, *said)
    read_settings(model_dir, *said)  # rejects settings that differ from the model's
    return model_dir, checkpointing.step_of(checkpointing.latest_checkpoint(model_dir)), {}


def check_start(
    command: CommandLine,
    hparams: PretrainingHParams,
    config: BackboneConfig,
    vocabulary: Vocabulary,
) -> Start | None:
    """Checks that source, data and run fit together; returns the plan for --continue_from.

    Returns None if training starts from random weights or resumes in `model_dir`.
    """
    model_dir = command.model_dir
    if checkpointing.has_checkpoint(model_dir):
        record = read_record(model_dir)
        reject_other_data(model_dir, record, command.data_dir)
        reject_other_start(command, record["run_settings"].get("continue_from"))
        return None
    reject_lost_checkpoints(model_dir)
    if command.continue_from is None:
        fits = hparams.schedule_from_step == 0
        check_setting(hparams, fits, "schedule_from_step", "0 without --continue_from")
        return None
    return plan_start(command, hparams, config, vocabulary)


def reject_other_start(command: CommandLine, before: str | None) -> None:
    """Raises InputError if a run that has begun did so from another source; it may have moved."""
    sources = (before, command.continue_from)
    if len({path and os.path.basename(storage.abspath(path)) for path in sources}) > 1:
        raise InputError(
            f"{command.model_dir} holds a run that began from {before or 'random weights'}."
            f" --continue_from should be as then, or --model_dir another. Received: {sources[1]}"
        )


def reject_lost_checkpoints(model_dir: str) -> None:
    """Raises InputError if metrics show that a checkpoint was saved and none is left."""
    rows = monitoring.read_metrics(model_dir)
    if not rows or not storage.exists(os.path.join(model_dir, HPARAMS_FILE)):
        return
    first, last = rows[0]["step"], rows[-1]["step"]  # the first is not 1 with --continue_from
    interval = read_record(model_dir)["run_settings"].get("save_checkpoints_steps", last)
    if (last - 1) // interval * interval >= first:  # at `last`, it may have been killed before
        raise InputError(
            f"{model_dir}: training came to step {last} according to {monitoring.METRICS_FILE}, but"
            f" {CHECKPOINT_FOLDER}/ has no checkpoint. Restore the checkpoints from a copy, choose"
            f" another --model_dir, or delete {monitoring.METRICS_FILE} to begin again"
        )


def describe_hparams(
    command: CommandLine, hparams: PretrainingHParams, vocabulary: Vocabulary, offset: int
) -> dict[str, Any]:
    """Returns everything that determines a run's weights."""
    described = {**hparams.as_json(), "vocabulary": vocabulary.digest, **plugins.recorded()}
    data = settings_digest(command.data_dir)
    described |= {DATA_OFFSET: offset} if offset else {}
    return described | ({"data": data} if data else {})


def report(model_dir: str, step: int, row: dict[str, Any] | None = None) -> None:
    """Prints the locations of all files and a row of metrics, or the last, on the chief only."""
    if not workers.is_chief():
        return
    memory = peak_memory_gib()
    print(f"step {step}, model in {model_dir}, peak memory {memory:.1f} GiB", file=sys.stderr)
    for last in [row] if row else monitoring.read_metrics(model_dir)[-1:]:
        values = {k: v for k, v in last.items() if isinstance(v, float) and k != "time"}
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        print(f"{last['split']}: {shown}", file=sys.stderr)

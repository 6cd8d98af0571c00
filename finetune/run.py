"""Runs tasks x settings x trials for `run_finetuning.py` and `convbert.fine_tune`."""

from __future__ import annotations

import collections
import dataclasses
import gc
import hashlib
import os
from typing import Any

import tensorflow as tf

from convbert.common import storage
from convbert.common.backend import on_tpu, precision
from convbert.common.errors import InputError, LossNotFinite, decorating
from convbert.common.settings import check_setting
from convbert.finetune.batches import FEW_LENGTHS, slots
from convbert.finetune.declaration import Task
from convbert.finetune.learner import Learner, may_follow
from convbert.finetune.plan import Context, Plan, Trial, folder_name, setting_of
from convbert.finetune.report import summary_line, write_report
from convbert.finetune.task_data import load_task_data
from convbert.finetune.trial import finished_result, lacks, run_trial
from convbert.model import BackboneConfig, load_config
from convbert.model.architectures import size_of
from convbert.pretrain.load import load_encoder, recorded_vocabulary
from convbert.training import distribution, workers
from convbert.training.checkpointing import checkpoint_of_step, step_of
from convbert.training.distribution import create_strategy, micro_batches
from convbert.training.loop import check_parts
from convbert.training.run_record import HPARAMS_FILE, read_record, trained_length


def fine_tune_all(plan: Plan, worker_timeout: float = workers.TIMEOUT) -> dict[str, dict[str, Any]]:
    """Runs unfinished trials and writes the report. Reads all files before the first run.

    Returns folder -> contents of `result.json`, for all requested runs. LossNotFinite if some
    diverged; the others are in the report.
    """
    config, pretraining = load_config(plan.model_dir), pretraining_hparams(plan.model_dir)
    vocabulary = recorded_vocabulary(plan.model_dir)
    with workers.at_work(plan.run.strategy, plan.output_dir, worker_timeout):
        tf.get_logger().setLevel("ERROR")  # it warns about retracing; each run traces its own step
        strategy = create_strategy(plan.run.strategy, plan.run.tpu)
        plan = with_fast_values(plan, config, strategy)
        size = size_of(config, pretraining.get("objective"))
        checkpoint = None
        if plan.inits != ("random",):
            plan, checkpoint = _with_checkpoint(plan)
        context = Context(plan, strategy, vocabulary, config, pretraining, size, checkpoint)
        trials = [trial for task in plan.tasks for trial in _trials(task, context)]
        _check_trials(trials, context)
        with precision(trials[0].hparams.precision):
            results, diverged = run_all(trials, context)
        if results and workers.is_chief():
            with decorating("the report"):
                print(summary_line(results.values()))
                print(f"report: {write_report(plan.output_dir)}")
        if diverged:
            raise LossNotFinite("\n".join(diverged))
        return results


def pretraining_hparams(model_dir: str) -> dict[str, Any]:
    """Returns the recorded pre-training hyper-parameters of the encoder."""
    record = read_record(model_dir)
    hparams = {**record["hparams"], "max_seq_length": trained_length(model_dir)}
    return record["run_settings"].get("pretraining", hparams)  # already fine-tuned


def with_fast_values(plan: Plan, config: BackboneConfig, strategy: tf.distribute.Strategy) -> Plan:
    """Adds fast settings for the devices to a plan, unless tasks or begun runs set them.

    Whole-step XLA is excluded: it compiles for each batch length, which takes longer than most
    fine-tuning runs.
    """
    fast = {k: v for k, v in distribution.fast_values(strategy).items() if k == "precision"}
    if on_tpu(strategy) and not config.visible_padding:
        fast["length_buckets"] = FEW_LENGTHS
    said = {*plan.grid, *set.intersection(*map(set, plan.values.values()))}
    recorded: dict[str, Any] = {}
    for task in plan.tasks if fast else ():
        points = storage.matching(os.path.join(plan.output_dir, task.name), "*")
        trials = (trial for point in points for trial in storage.matching(point, "trial_*"))
        begun = (t for t in trials if storage.exists(os.path.join(t, HPARAMS_FILE)))
        if trial := next(begun, None):
            recorded = read_record(trial)["hparams"] | recorded
    fast = distribution.chosen_values(fast, said, recorded)
    values = {task: {**fast, **own} for task, own in plan.values.items()}
    return dataclasses.replace(plan, values=values)


def _with_checkpoint(plan: Plan) -> tuple[Plan, str]:
    """Returns the plan with the step of the encoder's checkpoint, and a SHA-256 of its weights.

    All runs begin with that one, even if pre-training goes on. InputError if it is missing.
    """
    path = checkpoint_of_step(plan.model_dir, plan.checkpoint_step)
    plan = dataclasses.replace(plan, checkpoint_step=step_of(path))
    load_encoder(plan.model_dir, step=plan.checkpoint_step)  # fails before data is read
    with storage.open(f"{path}.index", "rb") as file:  # holds a checksum of every tensor
        return plan, hashlib.sha256(file.read()).hexdigest()


def _trials(task: Task, context: Context) -> list[Trial]:
    """Returns the runs of a task: all settings of the grid, all seeds."""
    plan, trials, loaded = context.plan, [], {}
    trained_length = context.pretraining.get("max_seq_length")
    for swept, hparams in plan.points(task, context.config):
        length = hparams.max_seq_length
        if trained_length and length > trained_length and hparams.init == "pretrained":
            seen = f"pre-training saw only the first {trained_length} positions"
            workers.say(f"{task.name}: `max_seq_length` is {length}, but {seen}")
        shaping = ("max_seq_length", "max_train_examples", *task.plugin.shaping)
        shape = tuple(getattr(hparams, name) for name in shaping)
        if shape not in loaded:
            loaded[shape] = load_task_data(
                task,
                plan.data_dir,
                context.vocabulary,
                hparams,
                train=plan.train,
                test=plan.run.write_test_outputs,
            )
        setting = setting_of(hparams, swept)
        folder = os.path.join(plan.output_dir, task.name, folder_name(setting, hparams.init))
        for number in range(plan.run.num_trials):
            own = dataclasses.replace(hparams, seed=hparams.seed + number)
            trial = os.path.join(folder, f"trial_{number}")
            trials.append(Trial(trial, number, setting, own, loaded[shape]))
    return trials


def _check_trials(trials: list[Trial], context: Context) -> None:
    """Rejects two runs in one folder, and batches that devices or micro-batches would split."""
    run, strategy = context.plan.run, context.strategy
    folders = collections.Counter(trial.folder for trial in trials)
    for folder, count in folders.items():
        if count > 1:
            raise InputError(
                f"Each run should be asked for once. Received: {folder} {count} times, by --task"
                " (tasks of one name need a `name`), --init or equal values in --sweep"
            )
    count = strategy.num_replicas_in_sync
    for trial in trials:
        kind, B = trial.data.task.plugin, trial.hparams.train_batch_size
        group = kind.group_size(trial.data.task)
        if trial.data.train is not None and kind.whole_examples(trial.hparams):
            group = slots(trial.data.train, B)  # only for training
        expectation = f"a multiple of {count * group}, {group} sequences on {count} devices"
        fits = B % (count * group) == 0
        check_setting(trial.hparams, fits, "train_batch_size", expectation)
        micro = run.micro_batch_size
        parts = micro_batches(B, count, micro)
        if trial.data.train is not None:
            head = kind.head(trial.data.task, context.config, trial.hparams)
            check_parts(head, strategy, parts, run.xla and not on_tpu(strategy))
        fits = micro is None or micro % group == 0
        check_setting(run, fits, "micro_batch_size", f"a multiple of {group}, whole examples")


def run_all(trials: list[Trial], context: Context) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Runs unfinished trials; returns results by folder, and messages of diverged runs.

    Raises InputError before the first run if a folder holds another run.
    """
    train = context.plan.train
    found = {trial.folder: finished_result(trial, context) for trial in trials}
    if not train and (unfinished := [folder for folder, result in found.items() if not result]):
        raise InputError(f"{unfinished[0]}: --nodo_train should have finished runs")
    left = [trial for trial in trials if not train or lacks(found[trial.folder], trial)]
    if len(left) < len(trials):
        workers.say(f"{len(trials) - len(left)} of {len(trials)} runs are finished already")
    learner, diverged = None, []
    for number, trial in enumerate(left, 1):
        workers.say(f"run {number}/{len(left)}: {trial.data.task.name}, trial {trial.number}")
        if learner and may_follow(learner.trial, trial, context.strategy):
            learner.begin(trial, context)
        else:
            if learner:  # two at a time would take twice the memory
                learner = None
                gc.collect()  # its functions refer to themselves
            learner = Learner(trial, context)
        try:
            found[trial.folder] = run_trial(
                trial, context, learner, train=train and found[trial.folder] is None
            )
        except LossNotFinite as error:
            diverged.append(f"{trial.folder}: {error}")
    learner = None
    gc.collect()
    return {folder: result for folder, result in found.items() if result}, diverged

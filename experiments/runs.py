"""The runs of an experiment: planned, made once, resumed, and shared between experiments.

A run is one system pre-trained from one seed, then fine-tuned and measured. Its folder is named by
what determines its weights, so experiments with one output folder share runs, and several processes
with one output folder share the work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import filelock
import tensorflow as tf

from convbert.analysis.attention import measure
from convbert.analysis.operations import recipe_hparams, training_flops
from convbert.benchmarks.ours import step_trainer
from convbert.common import storage
from convbert.common.errors import InputError, LossNotFinite, located, warn
from convbert.common.files import read_json, write_json
from convbert.common.locks import locked
from convbert.common.settings import present, read_json_object, reject_unknown
from convbert.data.manifest import read_manifest, settings_digest
from convbert.experiments.declaration import Experiment
from convbert.finetune.declaration import load_task
from convbert.finetune.plan import Plan, make_plan
from convbert.finetune.results import read_results
from convbert.finetune.run import fine_tune_all
from convbert.finetune.task_files import source_of
from convbert.pretrain import run as pretraining
from convbert.pretrain.hparams import (
    CommandLine,
    PretrainingHParams,
    check_data,
    encoder_config,
    resolve_hparams,
    split_hparams,
    with_length_of_data,
)
from convbert.pretrain.load import data_vocabulary
from convbert.serving.scoring.nbest import read_lists
from convbert.serving.scoring.rescoring import model_scores, rescored
from convbert.training import workers
from convbert.training.checkpointing import find_checkpoints, step_of
from convbert.training.monitoring import read_metrics
from convbert.training.run_record import CHECKPOINT_FOLDER
from convbert.training.tracing import temporary_graphs

FAILED_FILE = "failed.json"  # in the folder of a run whose loss was not finite
MEASURED_FOLDER = "seconds_per_step"  # in the output folder
_MEASURED_TOKENS, _MEASURED_STEPS = 1024, 3
_PAUSE = 5  # seconds until runs of another process are looked at again


@dataclasses.dataclass(frozen=True)
class Run:
    """A planned run."""

    system: str
    seed: int
    hparams: PretrainingHParams
    command: CommandLine
    steps: tuple[int, ...]  # of the checkpoints to fine-tune, the last one last
    start: Run | None  # the run that it continues

    @property
    def folder(self) -> str:
        """Returns the model directory."""
        return self.command.model_dir

    def flops(self, step: int | None = None) -> float:
        """Returns the training FLOPs by ELECTRA's convention, up to a step or of all."""
        step = self.steps[-1] if step is None else step
        before, first = (self.start.flops(), self.start.steps[-1]) if self.start else (0.0, 0)
        return before + flops_per_step(self.hparams) * (step - first)

    @property
    def failed(self) -> str | None:
        """Returns why pre-training ended early, or None."""
        path = os.path.join(self.folder, FAILED_FILE)
        return read_json(path)["reason"] if storage.exists(path) else None

    @property
    def pretrained(self) -> bool:
        """Returns True if the last weights are saved and evaluated."""
        found = find_checkpoints(os.path.join(self.folder, CHECKPOINT_FOLDER))
        rows = {(row["step"], row["split"]) for row in read_metrics(self.folder)}
        last = self.steps[-1]
        return bool(found) and step_of(found[0]) == last and (last, "heldout") in rows


def plan(experiment: Experiment) -> list[Run]:
    """Returns all runs, those of the first seed first, a start before what continues from it.

    InputError for settings, data or tasks that do not fit, before anything runs.
    """
    systems = experiment.systems
    runs: list[Run] = []
    unknown = {systems[name].data for name in experiment.chosen} - {*experiment.data_dirs}
    if unknown and experiment.data_dirs:
        raise InputError(f"--data_dir should name a folder: {min(unknown) or 'the main one'}")
    order = sorted(experiment.chosen, key=lambda name: systems[name].continue_from is not None)
    for seed in range(experiment.scale.seeds):
        made: dict[str | None, Run] = {}
        for system in order:
            with located(system):
                start = made.get(systems[system].continue_from)
                made[system] = _planned(experiment, system, seed, start)
        runs += made.values()
    equal = {run.folder: run.system for run in runs}
    if twins := [run for run in runs if equal[run.folder] != run.system]:
        raise InputError(f"{twins[0].system} and {equal[twins[0].folder]} should differ")
    reject_unknown(experiment.scale.measures, [*MEASURES])
    for run in runs[: len(order)]:  # of the first seed
        config = encoder_config(run.hparams, present(run.hparams.vocab_size))
        for _, name, values in parts(experiment, run):
            task_plan = _task_plan(experiment, name, values, "")
            (task,) = task_plan.tasks
            tuple(task_plan.points(task, config))  # checks hyper-parameters
            _task_digest(experiment.tasks_dir, name)  # and files
    return runs


def _planned(experiment: Experiment, system: str, seed: int, start: Run | None) -> Run:
    own, scale = experiment.systems[system], experiment.scale
    data_dir = experiment.data_dirs.get(own.data, "")
    values = {**experiment.values(system), "seed": seed}
    hparams = _resolved(values, data_dir)
    steps = round(_steps(experiment, hparams) * own.steps_factor)
    if hparams.num_warmup_steps >= steps:
        raise InputError(
            f"the budget of {steps} steps should be more than `num_warmup_steps`,"
            f" {hparams.num_warmup_steps}"
        )
    hparams = dataclasses.replace(hparams, num_train_steps=steps)
    if data_dir:
        check_data(data_dir, hparams)
    # The precision is explicit, as a run would choose it by its device.
    values |= {"num_train_steps": steps, "precision": hparams.precision}
    given, run_values, _ = split_hparams(values)
    interval = -(-steps // scale.evaluations)
    between = interval * scale.evaluations // scale.checkpoints
    saved = [min(between * (n + 1), steps) for n in range(scale.checkpoints)]
    run_values |= {
        "save_checkpoints_steps": interval,
        "keep_checkpoint_max": 1 if scale.checkpoints == 1 else 0,
        "num_eval_steps": -1,
    }
    identity = {
        **hparams.as_json(),
        "data": settings_digest(read_manifest(data_dir)) if data_dir else None,
        "start": os.path.basename(start.folder) if start else None,
        "saved": saved if scale.checkpoints > 1 else None,
    }
    name = f"{hparams.model_size}-{hparams.objective.name}-{_digest(identity)}"
    command = CommandLine(
        data_dir=data_dir,
        model_dir=os.path.join(experiment.output_dir, "models", name),
        do_eval=True,
        continue_from=start.folder if start else None,
        hparam_values=with_length_of_data(given, data_dir) if data_dir else given,
        run_values=run_values,
    )
    return Run(system, seed, hparams, command, tuple(saved), start)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _resolved(values: dict[str, Any], data_dir: str) -> PretrainingHParams:
    """Returns resolved hyper-parameters; without data, with the vocabulary of the named size."""
    hparams, _, _ = split_hparams(values)
    if data_dir:
        hparams = with_length_of_data(hparams, data_dir)
        return resolve_hparams(hparams, data_vocabulary(data_dir).size)
    return recipe_hparams(json.dumps(hparams))


def _steps(experiment: Experiment, hparams: PretrainingHParams) -> int:
    """Returns the steps that the scale's budget gives to a system."""
    scale, flops = experiment.scale, experiment.scale.flops
    if scale.hours:
        return max(1, int(scale.hours * 3600 / seconds_per_step(hparams, experiment.output_dir)))
    if of := scale.flops_of:
        data_dir = experiment.data_dirs.get(experiment.systems[of].data, "")
        flops = present(scale.steps) * flops_per_step(_resolved(experiment.values(of), data_dir))
    if flops:
        return max(1, round(flops / flops_per_step(hparams)))
    return scale.steps or hparams.num_train_steps


def flops_per_step(hparams: PretrainingHParams) -> float:
    """Returns the FLOPs of one step by ELECTRA's convention."""
    flops = training_flops(hparams)
    if flops is None:
        raise InputError(f"the operations of objective {hparams.objective.name} are not counted")
    return flops / hparams.num_train_steps


def seconds_per_step(hparams: PretrainingHParams, output_dir: str = "") -> float:
    """Measures a step on this machine with some of the sequences of a batch, times their share.

    With an output folder, the measurement is kept there, so that a budget in hours means the same
    number of steps after an interruption.
    """
    key = _digest({**hparams.as_json(), "seed": 0, "num_train_steps": None})
    path = os.path.join(output_dir, MEASURED_FOLDER, f"{key}.json")
    if output_dir and storage.exists(path):
        return read_json(path)["seconds"]
    batch = max(1, _MEASURED_TOKENS // hparams.max_seq_length)
    batch = min(batch, present(hparams.train_batch_size))
    with temporary_graphs():
        trainer = step_trainer(dataclasses.replace(hparams, train_batch_size=batch))
        trainer.train(tf.constant(1))
        started = time.monotonic()
        trainer.train(tf.constant(_MEASURED_STEPS))
    seconds = (time.monotonic() - started) / _MEASURED_STEPS
    seconds *= present(hparams.train_batch_size) / batch
    if output_dir:
        storage.makedirs(os.path.dirname(path))
        write_json(path, {"seconds": seconds})
    return seconds


def run_all(experiment: Experiment, runs: list[Run]) -> None:
    """Makes all unfinished runs; waits for those that another process is making."""
    waiting = runs
    while waiting:
        busy = [run for run in waiting if not _tried(experiment, run)]
        if len(busy) == len(waiting):
            time.sleep(_PAUSE)
        elif busy:
            workers.say(f"{len(busy)} runs are left, which other processes are making")
        waiting = busy


def _tried(experiment: Experiment, run: Run) -> bool:
    """Makes a run; returns False if another process is at it or at its start."""
    if run.start and not (run.start.pretrained or run.start.failed):
        return False
    with contextlib.ExitStack() as stack:
        storage.makedirs(os.path.dirname(run.folder))
        try:
            stack.enter_context(locked(run.folder, beside=True))
        except InputError as error:
            if isinstance(error.__cause__, filelock.Timeout):
                return False
            raise
        with temporary_graphs():
            _pretrain(run)
        gc.collect()  # the graphs refer to themselves
        if not run.failed:
            for step, name, values in parts(experiment, run):
                _fine_tune(experiment, run, step, name, values)
            for name, settings in experiment.scale.measures.items():
                path = measure_path(run, name, settings)
                if not storage.exists(path):
                    storage.makedirs(os.path.dirname(path))
                    write_json(path, MEASURES[name](run.folder, experiment.tasks_dir, **settings))
    return True


def _pretrain(run: Run) -> None:
    """Trains a run to its end, or marks it as failed."""
    if run.failed or run.pretrained:
        return
    if run.start and run.start.failed:
        storage.makedirs(run.folder)
        write_json(os.path.join(run.folder, FAILED_FILE), {"reason": "its start diverged"})
        return
    workers.say(f"\n{run.system}, seed {run.seed}: {run.folder}")
    with workers.at_work(run.command.run_settings.strategy, run.folder):
        try:
            with pretraining.prepared(run.command) as prepared:
                prepared.train()
        except LossNotFinite as error:
            warn(f"{run.system}, seed {run.seed}: {error}")
            write_json(os.path.join(run.folder, FAILED_FILE), {"reason": str(error)})


def parts(experiment: Experiment, run: Run) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yields checkpoint step, name of the task and hyper-parameters of all fine-tuning of a run.

    A name is a task's, "cola", with a label, "ptb crf", or a declaration's file.
    """
    for step in run.steps:
        for name, values in experiment.scale.tasks.items():
            yield step, name, {**values, **experiment.systems[run.system].finetuning}


def _task_plan(
    experiment: Experiment, name: str, values: dict[str, Any], output_dir: str, **options: Any
) -> Plan:
    """Returns the plan of fine-tuning on a task; `options` replace fields of Plan."""
    return make_plan(
        [load_task(name if name.endswith(".json") else name.partition(" ")[0])],
        read_json_object(experiment.scale.recipe, "recipe"),
        values,
        {"num_trials": experiment.scale.num_trials, "write_test_outputs": False},
        **{"model_dir": "", "grid": {}, **options},
        data_dir=experiment.tasks_dir,
        output_dir=output_dir,
    )


def tuned(
    experiment: Experiment, run: Run, step: int, name: str, values: dict[str, Any]
) -> tuple[str, list[dict[str, Any]]]:
    """Returns the folder of fine-tuning one checkpoint on one task, and its finished runs."""
    recipe = read_json_object(experiment.scale.recipe, "recipe") | {"about": None}
    identity = _digest([recipe, name, values, _task_digest(experiment.tasks_dir, name)])
    folder = os.path.join(run.folder, "finetuning", f"{identity}-step_{step}")
    try:
        results = read_results(folder)[0]
    except InputError:  # none
        return folder, []
    return folder, [of for of in results if of["trial"] < experiment.scale.num_trials]


@functools.cache
def _task_digest(tasks_dir: str, name: str) -> str:
    """Returns a digest of a task's declaration and of its files; InputError if one is missing."""
    task = load_task(name if name.endswith(".json") else name.partition(" ")[0])
    found: list[Any] = [task.to_json()]
    for split in sorted({*task.splits} - {*task.test}) if tasks_dir else ():
        path = pathlib.Path(source_of(task, tasks_dir, split).path)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            found.append(hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "")
    return _digest(found)


def _fine_tune(
    experiment: Experiment, run: Run, step: int, name: str, values: dict[str, Any]
) -> None:
    """Makes the fine-tuning runs that are missing, and keeps their scores only."""
    folder, results = tuned(experiment, run, step, name, values)
    if len(results) >= experiment.scale.num_trials:
        return
    workers.say(f"\n{run.system}, seed {run.seed}, step {step}: {name}")
    chosen = {"model_dir": run.folder, "checkpoint_step": step}
    try:
        fine_tune_all(_task_plan(experiment, name, values, folder, **chosen))
    except LossNotFinite as error:
        warn(str(error))
    for result in tuned(experiment, run, step, name, values)[1]:
        storage.rmtree(os.path.join(result["folder"], CHECKPOINT_FOLDER), ignore_errors=True)


def measure_path(run: Run, name: str, settings: dict[str, Any]) -> str:
    """Returns the file of a measure's result."""
    return os.path.join(run.folder, "measures", f"{name}-{_digest(settings)}.json")


def _concentration(model_dir: str, tasks: str, task: str = "mrpc", **options) -> dict[str, float]:
    found = measure(model_dir, task, tasks, **options)
    kinds = ("concentration", "concentration_without_special", "concentration_uniform")
    values = {name: found[name]["all"] for name in kinds if name in found}
    return values | {"mean length": found["lengths"]["mean"], "truncated": found["truncated"]}


def _rescoring(model_dir: str, tasks: str, dev: str, test: str) -> dict[str, float]:
    lists = [read_lists(os.path.join(tasks, name)) for name in (dev, test)]
    report = rescored(lists[0], lists[1], functools.partial(model_scores, model_dir))
    return {"lambda": report["lambda"], "better_by": report["better_by"], **report["test"]}


# Name -> function of a model directory, the tasks' folder and the settings; returns scores.
MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "concentration": _concentration,  # see analysis.attention
    "rescoring": _rescoring,  # see serving.scoring.rescore
}

"""The runs of an experiment, planned: one system each, pre-trained from one seed.

A run's folder is named by what determines its weights, so experiments with one output folder share
runs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from typing import Any

import pandas as pd

from convbert.analysis.operations import recipe_hparams, training_flops
from convbert.benchmarks.ours import seconds_per_step
from convbert.common import plugins, storage
from convbert.common.errors import InputError, LossNotFinite, located, warn
from convbert.common.files import read_json, write_json
from convbert.common.settings import present
from convbert.data.manifest import settings_digest
from convbert.experiments.declaration import Experiment
from convbert.pretrain import run as pretraining
from convbert.pretrain.continuation import inherited_values
from convbert.pretrain.hparams import (
    CommandLine,
    PretrainingHParams,
    check_data,
    resolve_hparams,
    split_hparams,
    with_length_of_data,
)
from convbert.pretrain.load import data_vocabulary
from convbert.training import workers
from convbert.training.checkpointing import find_checkpoints, step_of
from convbert.training.distribution import micro_batches
from convbert.training.monitoring import NO_METRICS, read_metrics
from convbert.training.run_record import CHECKPOINT_FOLDER, HPARAMS_FILE
from convbert.training.tracing import temporary_graphs

FAILED_FILE = "failed.json"  # in a folder whose loss was not finite
MEASURED_FOLDER = "seconds_per_step"  # in the output folder
Row = tuple[int, str, str, float]  # step, score, trial of fine-tuning or "", value


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

    @property
    def source(self) -> str:
        """Returns the name of the model directory."""
        return os.path.basename(self.folder)

    @property
    def first(self) -> int:
        """Returns the step at which it begins."""
        return self.start.steps[-1] if self.start else 0

    def flops(self, step: int | None = None) -> float:
        """Returns the training FLOPs by ELECTRA's convention, up to a step or of all."""
        step = self.steps[-1] if step is None else step
        before = self.start.flops() if self.start else 0.0
        return before + flops_per_step(self.hparams) * (step - self.first)

    def hours_per_step(self) -> float:
        """Returns the median pace of pre-training, so that stops do not count; NaN if unknown."""
        rows = [row for row in read_metrics(self.folder) if row["split"] == "train"]
        changes = pd.DataFrame(rows, columns=["time", "step"]).diff()
        return (changes["time"] / changes["step"]).median() / 3600

    def rows(self) -> list[Row]:
        """Returns the metrics of held-out text."""
        return [
            (line["step"], f"heldout {name}", "", line[name])
            for line in read_metrics(self.folder)
            if line["split"] == "heldout"
            for name in sorted({*line} - {*NO_METRICS})
        ]

    @property
    def failed(self) -> str | None:
        """Returns why pre-training ended early, or None."""
        return failed(self.folder)

    @property
    def trained(self) -> bool:
        """Returns True if pre-training has ended and its last checkpoint is there."""
        saved = {*map(step_of, find_checkpoints(os.path.join(self.folder, CHECKPOINT_FOLDER)))}
        return self.steps[-1] in saved & {step for step, *_ in self.rows()}

    def make(self) -> None:
        """Trains to the end, or marks the run as failed."""
        if self.failed or self.trained:
            return
        if self.start and self.start.failed:
            fail(self.folder, "its start diverged")
            return
        workers.say(f"\n{self.system}, seed {self.seed}: {self.folder}")
        strategy = self.command.run_settings.strategy
        with workers.at_work(strategy, self.folder), temporary_graphs():
            try:
                with pretraining.prepared(self.command) as prepared:
                    prepared.train()
            except LossNotFinite as error:
                fail(self.folder, str(error))


def commit_of(folder: str) -> str:
    """Returns the commit that trained a model directory, "" if unknown."""
    path = os.path.join(folder, HPARAMS_FILE)
    return short(read_json(path)["git_commit"]) if storage.exists(path) else ""


def short(commit: str | None) -> str:
    """Returns ten digits of a commit, and "-dirty" where it is."""
    return (commit or "")[:10] + (commit or "")[40:]


def fail(folder: str, reason: str, trials: int = 1) -> None:
    """Marks a folder, or so many fine-tuning runs in it, as failed."""
    warn(f"{folder}: {reason}")
    storage.makedirs(folder)
    write_json(os.path.join(folder, FAILED_FILE), {"reason": reason, "trials": trials})


def failed(folder: str, trials: int = 1) -> str | None:
    """Returns why a folder, or so many fine-tuning runs in it, failed, or None."""
    path = os.path.join(folder, FAILED_FILE)
    found = read_json(path) if storage.exists(path) else {}
    return found["reason"] if found.get("trials", 0) >= trials else None


def plan(experiment: Experiment) -> list[Run]:
    """Returns all runs, those of the first seed first, a start before what continues from it.

    InputError for settings or data that do not fit, before anything runs.
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
    return runs


def _planned(experiment: Experiment, system: str, seed: int, start: Run | None) -> Run:
    own, scale = experiment.systems[system], experiment.scale
    data_dir = experiment.data_dirs.get(own.data, "")
    values = {**experiment.values(system), "seed": seed}
    if start:
        said = split_hparams(values)[0]
        said = with_length_of_data(said, data_dir) if data_dir else said
        values |= inherited_values(said, start.hparams)
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
    run_values |= experiment.run_values
    if limit := experiment.run_values.get("micro_batch_size"):
        run_values["micro_batch_size"] = size = min(limit, present(hparams.train_batch_size))
        micro_batches(present(hparams.train_batch_size), 1, size)  # which it should divide
    interval = -(-steps // scale.evaluations)
    between = interval * scale.evaluations // scale.checkpoints
    ends = (min(between * (n + 1), steps) for n in range(scale.checkpoints))
    saved = [*dict.fromkeys(end for end in ends if end > (start.steps[-1] if start else 0))]
    if not saved:
        raise InputError(
            f"the budget should be more than the steps of `continue_from`. Received: {steps}"
        )
    run_values |= {
        "save_checkpoints_steps": interval,
        "keep_checkpoint_max": 1 if scale.checkpoints == 1 else 0,
        "num_eval_steps": -1,
    }
    # Without defaults, so that a later hyper-parameter does not rename runs.
    default = PretrainingHParams(objective=type(hparams.objective)()).as_json()
    identity = {
        **{name: of for name, of in hparams.as_json().items() if of != default[name]},
        "data": settings_digest(data_dir) if data_dir else None,
        "start": start.source if start else None,
        **{key: sorted(of.values()) for key, of in plugins.recorded().items()},  # wherever they are
        **({"checkpoints": saved} if len(saved) > 1 else {}),  # that are kept
    }
    name = f"{hparams.model_size}-{hparams.objective.name}-{digest(identity)}"
    command = CommandLine(
        data_dir=data_dir,
        model_dir=os.path.join(experiment.output_dir, "models", name),
        do_eval=True,
        continue_from=start.folder if start else None,
        hparam_values=with_length_of_data(given, data_dir) if data_dir else given,
        run_values=run_values,
    )
    return Run(system, seed, hparams, command, tuple(saved), start)


def digest(value: Any) -> str:
    """Returns eight characters that identify a JSON value."""
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
        if experiment.run_values:
            raise InputError("hours are timed without --micro_batch_size and --rematerialize")
        return max(1, int(scale.hours * 3600 / _seconds(hparams, experiment.output_dir)))
    if of := scale.flops_of:
        data_dir = experiment.data_dirs.get(experiment.systems[of].data, "")
        flops = present(scale.steps) * flops_per_step(_resolved(experiment.values(of), data_dir))
    if flops:
        if math.isnan(steps := flops / flops_per_step(hparams)):
            raise InputError(f"operations of {hparams.objective.name} are not counted")
        return max(1, round(steps))
    return scale.steps or hparams.num_train_steps


def flops_per_step(hparams: PretrainingHParams) -> float:
    """Returns the FLOPs of one step by ELECTRA's convention; NaN if not counted."""
    return training_flops(hparams) / hparams.num_train_steps


def _seconds(hparams: PretrainingHParams, output_dir: str) -> float:
    """Measures a step once per output folder, so a budget in hours is the same after a stop."""
    key = digest({**hparams.as_json(), "seed": 0, "num_train_steps": None})
    path = os.path.join(output_dir, MEASURED_FOLDER, f"{key}.json")
    if not storage.exists(path):
        storage.makedirs(os.path.dirname(path))
        seconds = seconds_per_step(hparams, tokens=16_384, steps=5, rounds=5)
        if not storage.exists(path):  # by now, from another process
            write_json(path, {"seconds": seconds})
    return read_json(path)["seconds"]

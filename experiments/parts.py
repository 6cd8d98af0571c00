"""What an experiment measures: pre-training, fine-tuning of its checkpoints, further measures.

A part is made once. Its `source` names what determines its scores, which are rows of results.csv,
so the results.csv of an earlier machine in the output folder count as done. Several processes with
one output folder share the work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import hashlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import filelock
import pandas as pd

from convbert.analysis.attention import measure
from convbert.common import storage
from convbert.common.errors import InputError, LossNotFinite
from convbert.common.files import read_json, write_json
from convbert.common.locks import locked
from convbert.common.settings import present, read_json_object, reject_unknown
from convbert.experiments.declaration import Experiment
from convbert.experiments.runs import FAILED_FILE, Row, Run, digest, fail
from convbert.finetune.declaration import Task, load_task
from convbert.finetune.plan import Plan, make_plan
from convbert.finetune.results import collapse, headline, headline_score, read_results
from convbert.finetune.run import fine_tune_all
from convbert.finetune.task_files import source_of
from convbert.pretrain.hparams import encoder_config
from convbert.serving.scoring.nbest import read_lists
from convbert.serving.scoring.rescoring import model_scores, rescored
from convbert.training import workers
from convbert.training.run_record import CHECKPOINT_FOLDER
from convbert.training.tracing import temporary_graphs

COLUMNS = ["source", "system", "seed", "step", "flops", "hours", "score", "trial", "value"]
RESULTS_FILE = "results.csv"
COLLAPSED = " collapsed"  # ends the name of a score that only marks a run
_PAUSE = 5  # seconds until runs of another process are looked at again


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """Fine-tuning of one checkpoint on one task, from all seeds."""

    experiment: Experiment
    run: Run
    step: int
    name: str  # a task's, "cola", with a label, "ptb crf", or a declaration's file
    values: dict[str, Any]

    @property
    def task(self) -> Task:
        """Returns the declaration of the task."""
        return _task(self.name)

    def plan(self, **options: Any) -> Plan:
        """Returns the plan of the fine-tuning command; `options` replace fields of Plan."""
        return make_plan(
            [self.task],
            read_json_object(self.experiment.scale.recipe, "recipe"),
            self.values,
            {"num_trials": self.experiment.scale.num_trials, "write_test_outputs": False},
            **{"model_dir": "", "output_dir": "", "grid": {}, **options},
            data_dir=self.experiment.tasks_dir,
        )

    @functools.cached_property
    def source(self) -> str:
        """Returns the run with a digest of the task, its files, and how it is fine-tuned."""
        recipe = read_json_object(self.experiment.scale.recipe, "recipe") | {"about": None}
        files = _digest_of_files(self.name, self.experiment.tasks_dir)
        identity = digest([recipe, self.name, self.values, files])
        return f"{self.run.source}/{identity}-step_{self.step}"

    @property
    def folder(self) -> str:
        """Returns the folder of the fine-tuning runs."""
        return os.path.join(self.run.folder, "finetuning", os.path.basename(self.source))

    def results(self) -> list[dict[str, Any]]:
        """Returns the contents of the finished runs' result.json."""
        try:
            found = read_results(self.folder)[0]
        except InputError:  # none
            return []
        return [of for of in found if of["trial"] < self.experiment.scale.num_trials]

    def rows(self) -> list[Row]:
        """Returns the headline scores of finished runs, and marks of collapsed ones."""
        rows, label = [], os.path.basename(self.name).removesuffix(".json")
        for result in self.results():
            trial, metric = str(result["trial"]), headline(result)[1]
            rows.append((self.step, f"{label} {metric}", trial, headline_score(result) or 0.0))
            if collapse(result):
                rows.append((self.step, label + COLLAPSED, trial, 1.0))
        return rows

    def complete(self, rows: pd.DataFrame) -> bool:
        """Returns True if all runs are finished, or a diverged one stays unfinished."""
        failed = storage.exists(os.path.join(self.folder, FAILED_FILE))
        return failed or rows["trial"].nunique() >= self.experiment.scale.num_trials

    def make(self) -> None:
        """Makes the runs that are missing, and keeps their scores only."""
        workers.say(f"\n{self.run.system}, seed {self.run.seed}, step {self.step}: {self.name}")
        chosen = {"model_dir": self.run.folder, "checkpoint_step": self.step}
        try:
            fine_tune_all(self.plan(**chosen, output_dir=self.folder))
        except LossNotFinite as error:
            fail(self.folder, str(error))
        for result in self.results():
            storage.rmtree(os.path.join(result["folder"], CHECKPOINT_FOLDER), ignore_errors=True)


def _task(name: str) -> Task:
    return load_task(name if name.endswith(".json") else name.split()[0])


@functools.cache
def _digest_of_files(name: str, tasks_dir: str) -> str:
    """Returns a digest of a task's declaration and of its files; InputError if one is missing."""
    task = _task(name)
    found: list[Any] = [task.to_json()]
    for split in sorted({*task.splits} - {*task.test}) if tasks_dir else ():
        path = pathlib.Path(source_of(task, tasks_dir, split).path)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            found.append(hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "")
    return digest(found)


@dataclasses.dataclass(frozen=True)
class Measure:
    """One of `MEASURES` of a run's last checkpoint."""

    experiment: Experiment
    run: Run
    name: str
    values: dict[str, Any]

    @property
    def source(self) -> str:
        """Returns the run with a digest of the settings."""
        return f"{self.run.source}/{self.name}-{digest(self.values)}"

    @property
    def path(self) -> str:
        """Returns the file of the result."""
        return os.path.join(self.run.folder, "measures", os.path.basename(self.source) + ".json")

    def rows(self) -> list[Row]:
        """Returns the scores, if there are any yet."""
        scores = read_json(self.path) if storage.exists(self.path) else {}
        return [(self.run.steps[-1], f"{self.name} {key}", "", of) for key, of in scores.items()]

    def complete(self, rows: pd.DataFrame) -> bool:
        """Returns True if there are scores."""
        return len(rows) > 0

    def make(self) -> None:
        """Measures."""
        storage.makedirs(os.path.dirname(self.path))
        scores = MEASURES[self.name](self.run.folder, self.experiment.tasks_dir, **self.values)
        write_json(self.path, scores)


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
Part = Run | FineTuning | Measure


def parts(experiment: Experiment, run: Run) -> Iterator[Part]:
    """Yields all parts of a run, its pre-training first."""
    yield run
    scale, own = experiment.scale, experiment.systems[run.system].finetuning
    for step in run.steps:
        for name, values in scale.tasks.items():
            yield FineTuning(experiment, run, step, name, {**values, **own})
    for name, values in scale.measures.items():
        yield Measure(experiment, run, name, values)


def check(experiment: Experiment, runs: list[Run]) -> None:
    """Raises InputError for tasks, their files, hyper-parameters and measures that do not fit."""
    reject_unknown(experiment.scale.measures, [*MEASURES])
    for run in runs[: len(experiment.chosen)]:  # of the first seed
        config = encoder_config(run.hparams, present(run.hparams.vocab_size))
        for part in parts(experiment, run):
            if isinstance(part, FineTuning):
                tuple(part.plan().points(part.task, config))  # checks hyper-parameters
                assert part.source  # and files


def run_all(experiment: Experiment, runs: list[Run]) -> None:
    """Makes all unfinished parts; waits for those that another process is making."""
    recorded, waiting = _recorded(experiment.output_dir), runs
    while waiting:
        busy = [run for run in waiting if not _made(experiment, run, recorded)]
        if len(busy) == len(waiting):
            time.sleep(_PAUSE)
        elif busy:
            workers.say(f"{len(busy)} runs are left, which other processes are making")
        waiting = busy


def _made(experiment: Experiment, run: Run, recorded: pd.DataFrame) -> bool:
    """Makes what a run lacks; returns False if another process is at it or at its start."""
    left = [part for part in parts(experiment, run) if not _scores(part, recorded)[1]]
    if run.failed or not left:
        return True
    with contextlib.ExitStack() as stack:
        for needed in filter(None, (run.start, run)):
            storage.makedirs(os.path.dirname(needed.folder))
            try:
                stack.enter_context(locked(needed.folder, beside=True))
            except InputError as error:
                if isinstance(error.__cause__, filelock.Timeout):
                    return False
                raise
            needed.make()
            gc.collect()  # the graphs refer to themselves
        for part in left if not run.failed else ():
            with temporary_graphs():
                part.make()
    return True


def _recorded(output_dir: str) -> pd.DataFrame:
    """Returns the rows of all results.csv in the output folder, those of a score once."""
    frames = [pd.DataFrame(columns=COLUMNS)]
    for folder in storage.matching(output_dir, "*"):
        if storage.exists(path := os.path.join(folder, RESULTS_FILE)):
            with storage.open(path) as file:
                frames.append(pd.read_csv(file, converters={"trial": str}))
    return pd.concat(frames).drop_duplicates(["source", "step", "score", "trial"])


def _scores(part: Part, recorded: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Returns a part's scores, new or recorded ones, and whether they are complete."""
    run = part if isinstance(part, Run) else part.run
    new = pd.DataFrame(part.rows(), columns=["step", "score", "trial", "value"])
    new["flops"] = new["step"].map(run.flops)
    new["hours"] = (new["step"] - run.first) * run.hours_per_step()
    earlier = recorded[recorded["source"] == part.source]
    found = new if part.complete(new) or not part.complete(earlier) else earlier
    return found.assign(source=part.source), part.complete(found)


def collect(experiment: Experiment, runs: Sequence[Run]) -> pd.DataFrame:
    """Returns all scores of finished and unfinished runs as rows of `COLUMNS`."""
    recorded = _recorded(experiment.output_dir)
    found = [
        _scores(part, recorded)[0].assign(system=run.system, seed=run.seed)
        for run in runs
        for part in parts(experiment, run)
    ]
    return pd.concat(found)[COLUMNS].reset_index(drop=True)

"""Parts of a run: pre-training, fine-tuning of its checkpoints, further measures.

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
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import filelock
import pandas as pd

from convbert.analysis.attention import concentration_scores
from convbert.analysis.embeddings import embedding_scores, layer_scores
from convbert.common import storage
from convbert.common.errors import InputError, LossNotFinite, located
from convbert.common.files import check_there, read_json, write_json
from convbert.common.locks import locked
from convbert.common.settings import present, read_json_object, reject_unknown
from convbert.experiments import runs
from convbert.experiments.declaration import AVERAGE, GRID, Experiment, grid
from convbert.experiments.runs import Row, Run, commit_of, digest, fail, failed
from convbert.finetune.declaration import Task, load_task
from convbert.finetune.plan import make_plan
from convbert.finetune.readers import treebank
from convbert.finetune.results import collapse, headline, headline_score, read_results
from convbert.finetune.run import fine_tune_all
from convbert.finetune.task_files import source_of
from convbert.pretrain.hparams import encoder_config
from convbert.serving.scoring.nbest import rescoring_scores
from convbert.training import workers
from convbert.training.run_record import CHECKPOINT_FOLDER
from convbert.training.tracing import temporary_graphs

# Name -> function of a model directory, the tasks' folder and the settings; returns scores. A
# measure's name may have a label: "embeddings after pairs".
MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "concentration": concentration_scores,
    "embeddings": embedding_scores,
    "layers": layer_scores,
    "rescoring": rescoring_scores,
}
# The task that a measure reads, unless its settings have `task`.
_TASKS_OF_MEASURES = {"concentration": "mrpc", "embeddings": "sts", "layers": "sts"}
RESULTS_FILE = "results.csv"
COLUMNS = ["source", "commit", "system", "seed", "step", "flops", "hours", "score", "trial"]
COLUMNS += ["setting", "value"]
KEYS = ["system", "seed", "source", "step", "score", "trial"]  # of a row
_TEXT = {"trial": "", "commit": "", "setting": ""}  # columns that may be empty
COLLAPSED = " collapsed"  # ends the name of a score that only marks a run
_PAUSE = 5  # seconds until runs of another process are looked at again


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a run."""

    run: Run
    folder: str
    step: int  # of the checkpoint
    trials: tuple[str, ...]  # that have a score of this step in the end, or ("",)
    rows: Callable[[], list[Row]]  # returns the scores so far
    make: Callable[[], None]
    folders: Callable[[], dict[str, str]]  # trial -> model directory, whose record has a commit
    label: str = ""  # of its scores: a task's, a measure's
    setting: str = ""  # JSON of what a grid changes

    @property
    def source(self) -> str:
        """Returns the names of the model directory and of the part's folder."""
        return "/".join(dict.fromkeys([self.run.source, os.path.basename(self.folder)]))

    def scores(self, recorded: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
        """Returns its scores, new or recorded ones, and whether they are complete."""
        new = pd.DataFrame(self.rows(), columns=["step", "score", "trial", "value"])
        commits = {trial: commit_of(folder) for trial, folder in self.folders().items()}
        new = new.assign(source=self.source, commit=new["trial"].map(commits))
        new["flops"] = new["step"].map(self.run.flops)
        new["hours"] = (new["step"] - self.run.first) * self.run.hours_per_step()
        for rows in (new, recorded[recorded["source"] == self.source]):
            if {*self.trials} <= {*rows[rows["step"] == self.step]["trial"]}:
                return rows[rows["trial"].isin(self.trials)].assign(setting=self.setting), True
        return new.assign(setting=self.setting), failed(self.folder, len(self.trials)) is not None


def plan(experiment: Experiment) -> list[Run]:
    """Returns all runs, those of the first seed first, a start before what continues from it.

    InputError for settings, data, tasks, measures or claims that do not fit, before anything runs.
    """
    reject_unknown([name.partition(" ")[0] for name in experiment.scale.measures], [*MEASURES])
    labels = [label_of(name) for name in experiment.scale.tasks]
    if len({*labels}) < len(labels):
        raise InputError(f"`tasks` should have different names. Received: {', '.join(labels)}")
    planned = runs.plan(experiment)
    for run in planned[: len(experiment.chosen)]:  # of the first seed
        tuple(parts(experiment, run))
    known = [*labels, *([AVERAGE] if len(labels) > 1 else [])]
    known += [f"{label_of(name)} {_task(name).metrics[0]}" for name in experiment.scale.tasks]
    measured = {"heldout", *experiment.scale.measures}
    scores = [of for claim in experiment.claims for of in (claim.score, claim.than_score) if of]
    for score in scores:  # "layers words search" is of the measure "layers"
        if measured.isdisjoint([score.rpartition(" ")[0], score.rsplit(" ", 2)[0]]):
            with located("claims"):
                reject_unknown([score], [*known, *measured])
    return planned


def parts(experiment: Experiment, run: Run) -> Iterator[Part]:
    """Yields all parts of a run, its pre-training first."""
    yield Part(run, run.folder, run.steps[-1], ("",), run.rows, run.make, lambda: {"": run.folder})
    scale, own = experiment.scale, experiment.systems[run.system].finetuning
    for step in run.steps:
        for name, values in scale.tasks.items():
            given = {of: value for of, value in values.items() if of != GRID}
            for point in grid(values):
                part = _fine_tuning(experiment, run, step, name, {**given, **own, **point})
                yield dataclasses.replace(part, setting=json.dumps(point) * (GRID in values))
    for name, values in scale.measures.items():
        yield _measure(experiment, run, name, values)


def _fine_tuning(
    experiment: Experiment, run: Run, step: int, name: str, values: dict[str, Any]
) -> Part:
    """Returns fine-tuning of one checkpoint on one task, from all seeds.

    `name` is a task's, "cola", with a label, "ptb crf", or a declaration's file.
    """
    task = _task(name)
    label = label_of(name)
    recipe = read_json_object(experiment.scale.recipe, "recipe")
    trials = experiment.scale.num_trials
    # The precision is explicit, as a run would choose it by its device.
    precision = {**recipe, **values}.get("precision", "float32")
    flags = {"num_trials": trials, "write_test_outputs": False, "precision": precision}
    folders = {"model_dir": run.folder, "data_dir": experiment.tasks_dir, "output_dir": ""}
    with located(f"task {name}"):
        if of_the_scale := {"num_trials", "write_test_outputs"} & {*values}:
            raise InputError(f"`{min(of_the_scale)}` should not be among a task's settings")
        tuning = make_plan([task], recipe, values, flags, grid={}, checkpoint_step=step, **folders)
        config = encoder_config(run.hparams, present(run.hparams.vocab_size))
        tuple(tuning.points(task, config))  # fit
    files = _digest_of_files(name, experiment.tasks_dir)
    identity = digest([{**recipe, "about": None}, label, values, files])
    folder = os.path.join(run.folder, "finetuning", f"{identity}-step_{step}")

    def results() -> list[dict[str, Any]]:
        with contextlib.suppress(InputError):  # none
            return [of for of in read_results(folder)[0] if of["trial"] < trials]
        return []

    def rows() -> list[Row]:
        found = []
        for result in results():
            trial, metric = str(result["trial"]), headline(result)[1]
            found.append((step, f"{label} {metric}", trial, headline_score(result) or 0.0))
            if collapse(result):
                found.append((step, label + COLLAPSED, trial, 1.0))
        return found

    def make() -> None:
        workers.say(f"\n{run.system}, seed {run.seed}, step {step}: {name}")
        try:
            fine_tune_all(dataclasses.replace(tuning, output_dir=folder))
        except LossNotFinite as error:
            fail(folder, str(error), trials)
        for result in results():  # only scores are kept
            storage.rmtree(os.path.join(result["folder"], CHECKPOINT_FOLDER), ignore_errors=True)

    def recorded() -> dict[str, str]:
        return {str(result["trial"]): result["folder"] for result in results()}

    return Part(run, folder, step, tuple(map(str, range(trials))), rows, make, recorded, label)


def label_of(name: str) -> str:
    """Returns what begins the names of a task's scores."""
    return _task(name).name if name.endswith(".json") else name


def _task(name: str) -> Task:
    return load_task(name if name.endswith(".json") else name.split()[0])


@functools.cache
def _digest_of_files(name: str, tasks_dir: str) -> str:
    """Returns a digest of a task's declaration and of its files; InputError if one is missing."""
    task = _task(name)
    folders = [of for of in task.folders if storage.abspath(of) != of]  # wherever it lies
    found: list[Any] = [{**task.to_json(), "folders": folders}]
    for split in sorted({*task.splits} - {*task.test}) if tasks_dir else ():
        path = str(source_of(task, tasks_dir, split).path)
        files = treebank.files_of(path) if task.format == "treebank" else [path]
        if storage.isdir(path):
            walked = storage.walk(path)
            files = sorted(os.path.join(at, name) for at, _, names in walked for name in names)
        found += map(_digest_of_file, files)
    return digest(found)


@functools.cache
def _digest_of_file(path: str) -> str:
    with storage.open(path) as content:
        return hashlib.sha256(content.read()).hexdigest()


def _measure(experiment: Experiment, run: Run, name: str, values: dict[str, Any]) -> Part:
    """Returns one of `MEASURES` of a run's last checkpoint; InputError if its data is missing."""
    kind = name.partition(" ")[0]
    measure = MEASURES[kind]
    with located(name):
        known = [*inspect.signature(measure).parameters.values()][2:]
        reject_unknown(values, [of.name for of in known])
        if lacking := [of.name for of in known if of.default is of.empty and of.name not in values]:
            raise InputError(f"`{lacking[0]}` should be given")
        task = values.get("task", _TASKS_OF_MEASURES.get(kind))
        files = [_digest_of_files(task, experiment.tasks_dir)] if task else []
        for key in sorted(values.keys() - {"task"}) if experiment.tasks_dir else ():
            path = os.path.join(experiment.tasks_dir, str(values[key]))
            if path.endswith(".json"):
                check_there(key, path)
            if storage.isfile(path):
                files.append(_digest_of_file(path))
    named = {"task": label_of(values["task"])} if "task" in values else {}
    identity = digest([{**values, **named}, files])
    folder = os.path.join(run.folder, "measures", f"{name.replace(' ', '_')}-{identity}")
    path = os.path.join(folder, "scores.json")

    def rows() -> list[Row]:
        found = read_json(path) if storage.exists(path) else {}
        return [(run.steps[-1], f"{name} {key}", "", value) for key, value in found.items()]

    def make() -> None:
        storage.makedirs(folder)
        try:
            write_json(path, measure(run.folder, experiment.tasks_dir, **values))
        except LossNotFinite as error:  # of fine-tuning before the measure
            fail(folder, str(error))

    return Part(run, folder, run.steps[-1], ("",), rows, make, lambda: {"": run.folder}, name)


def make_all(experiment: Experiment, planned: list[Run]) -> None:
    """Makes all unfinished parts; waits for those that another process is making."""
    recorded, waiting = _recorded(experiment), planned
    while waiting:
        busy = [run for run in waiting if not _made(experiment, run, recorded)]
        if len(busy) == len(waiting):
            time.sleep(_PAUSE)
        elif busy:
            workers.say(f"{len(busy)} runs are left, which other processes are making")
        waiting = busy


def left(experiment: Experiment, planned: Sequence[Run]) -> list[Part]:
    """Returns the parts of runs that lack scores."""
    recorded = _recorded(experiment)
    return [part for run in planned for part in _left(experiment, run, recorded)]


def _left(experiment: Experiment, run: Run, recorded: pd.DataFrame) -> list[Part]:
    own = () if run.failed else parts(experiment, run)
    return [part for part in own if not part.scores(recorded)[1]]


def _made(experiment: Experiment, run: Run, recorded: pd.DataFrame) -> bool:
    """Makes what a run lacks; returns False if another process is at it or at its start."""

    def make() -> None:
        run.make()
        for part in _left(experiment, run, recorded):
            with temporary_graphs():
                part.make()

    if not _left(experiment, run, recorded):
        return True
    return (not run.start or _alone(run.start, run.start.make)) and _alone(run, make)


def _alone(run: Run, make: Callable[[], None]) -> bool:
    """Calls `make` and returns True, or False if another process is at the run."""
    storage.makedirs(os.path.dirname(run.folder))
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(run.folder, beside=True))
        except InputError as error:
            if isinstance(error.__cause__, filelock.Timeout):
                return False
            raise
        make()
    gc.collect()  # the graphs refer to themselves
    return True


def _recorded(experiment: Experiment) -> pd.DataFrame:
    """Returns the rows of all results.csv in the output folder, those of a score once.

    An experiment's own come first, as other machines may have trained the same run elsewhere.
    """
    others = storage.matching(experiment.output_dir, "*")
    found = merged(*map(read_scores, [experiment.folder, *others]))
    return found.drop_duplicates(["source", "step", "trial", "score"])  # systems may share a run


def read_scores(folder: str) -> pd.DataFrame:
    """Returns the rows of a folder's results.csv, none if there is no such file."""
    if not storage.exists(path := os.path.join(folder, RESULTS_FILE)):
        return pd.DataFrame(columns=COLUMNS)
    with storage.open(path) as file:
        found = pd.read_csv(file, dtype=dict.fromkeys(_TEXT, str))
    return found.reindex(columns=COLUMNS, fill_value="").fillna(_TEXT)


def merged(*frames: pd.DataFrame) -> pd.DataFrame:
    """Returns all rows; those of a source, step and trial from the first frame that has some."""
    empty, keys = pd.DataFrame(columns=[*COLUMNS, "frame"]), ["source", "step", "trial"]
    found = pd.concat([empty, *(frame.assign(frame=i) for i, frame in enumerate(frames))])
    first = found.groupby(keys)["frame"].transform("min")
    return found[found["frame"] == first][COLUMNS].drop_duplicates([*keys, "score", "system"])


def collect(experiment: Experiment, planned: Sequence[Run]) -> pd.DataFrame:
    """Returns all scores of finished and unfinished runs as rows of `COLUMNS`."""
    recorded = _recorded(experiment)
    own = [part for run in planned for part in parts(experiment, run)]
    found = [of.scores(recorded)[0].assign(system=of.run.system, seed=of.run.seed) for of in own]
    rows = pd.concat(found)[COLUMNS].drop_duplicates(KEYS)  # a grid may have a point twice
    return rows.reset_index(drop=True)

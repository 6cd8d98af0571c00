"""The plan of a fine-tuning command and its trials; read and checked without TensorFlow."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from convbert.common import storage
from convbert.common.errors import InputError
from convbert.common.settings import field_names, present, reject_unknown, replace_checked, typed
from convbert.data.vocabulary import Vocabulary
from convbert.finetune import kinds
from convbert.finetune.declaration import Task, load_task
from convbert.finetune.hparams import (
    DROPOUT,
    FinetuningHParams,
    FinetuningRunSettings,
    resolve_hparams,
)
from convbert.finetune.task_files import Data
from convbert.model import BackboneConfig

if TYPE_CHECKING:
    import tensorflow as tf

    from convbert.finetune.task_data import TaskData

TASK_NAMES, DO_TRAIN = "task_names", "do_train"  # JSON keys that are flags here
# Keys of the original's configuration for hardware and file locations, which are flags here, and
# for files that are always written here.
IGNORED_NAMES: tuple[str, ...] = ("use_tpu", "num_tpu_cores", "tpu_job_name", "tpu_name")
IGNORED_NAMES += ("tpu_zone", "gcp_project", "model_name", "data_dir", "log_examples")
IGNORED_NAMES += ("predict_batch_size", "do_eval", "debug", "use_tfrecords_if_existing")
IGNORED_NAMES += ("n_best_size", "keep_all_models", "n_writes_test")
# Read from the model directory.
IGNORED_NAMES += ("model_size", "vocab_size", "embedding_size", "do_lower_case", "conv_type")
IGNORED_NAMES += ("conv_kernel_size", "linear_groups", "head_ratio", "model_hparam_overrides")
# The ConvBERT authors' search space, in the text above Table 2 of the supplement.
PAPER_GRID = {
    "learning_rate": [5e-5, 1e-4, 2e-4, 3e-4],
    "weight_decay_rate": [0.01, 0.1],
    "num_train_epochs": [10, 3],
}
_SHORT = {"learning_rate": "lr", "weight_decay_rate": "wd", "num_train_epochs": "epochs"}
_OF_ALL_RUNS = ("seed", "precision", "init")  # cannot be swept or set for a single task


@dataclasses.dataclass(frozen=True)
class Plan:
    """The merged settings of recipe, --hparams and flags; later ones take precedence."""

    model_dir: str
    data_dir: Data  # of the tasks' files, see `source_of`
    output_dir: str  # folder of the runs
    tasks: list[Task]
    run: FinetuningRunSettings
    values: dict[str, dict[str, Any]]  # task name -> hyper-parameters of all kinds
    grid: dict[str, Any]  # the sweep: hyper-parameter -> list of values
    inits: tuple[str, ...] = ()  # "pretrained" or "random"; (): as in the hyper-parameters
    train: bool = True  # False: evaluates finished runs again
    checkpoint_step: int | None = None  # of pre-training; None: its last checkpoint

    def points(
        self, task: Task, config: BackboneConfig
    ) -> Iterator[tuple[dict[str, Any], FinetuningHParams]]:
        """Yields the swept values and the resolved hyper-parameters of every setting."""
        known = field_names(*(other.plugin.hparams for other in self.tasks))
        if common := [name for name in self.grid if name in _OF_ALL_RUNS]:
            raise InputError(f"--sweep: `{common[0]}` cannot differ; see its flag or --num_trials")
        reject_unknown(self.grid, known)
        own = field_names(task.plugin.hparams)  # others may belong to other tasks' kinds
        fixed = {n: value for n, value in self.values[task.name].items() if n in own}
        lists = {name: typed(name, values, tuple[Any, ...]) for name, values in self.grid.items()}
        if empty := [name for name, values in lists.items() if not values]:
            raise InputError(f"--sweep: `{empty[0]}` should be a list of values. Received: []")
        grid = {name: values for name, values in lists.items() if name in own}
        for init, *values in itertools.product(self.inits or (None,), *grid.values()):
            swept = dict(zip(grid, values))
            chosen = {} if init is None else {"init": init}
            yield swept, resolve_hparams({**fixed, **swept, **chosen}, task, config)


def make_plan(
    tasks: list[Task],
    recipe: dict[str, Any],
    given: dict[str, Any],
    flags: dict[str, Any],
    **options: Any,
) -> Plan:
    """Merges the JSON objects of a recipe and --hparams, and flags that are not None.

    `options` are further fields of Plan. InputError for unknown names and values of wrong types.
    """
    recipe, given = ({n: of[n] for n in of if n != "about"} for of in (recipe, given))
    per_task = _per_task(recipe.pop("tasks", {}), tasks)
    said = {name: value for name, value in flags.items() if value is not None}
    (common, of_recipe), (own, of_run) = split_hparams(recipe), split_hparams({**given, **said})
    known = field_names(*(task.plugin.hparams for task in tasks))
    if elsewhere := [name for name in {**recipe, **given} if name in IGNORED_NAMES]:
        why = "ignored, set by flags or the model, but for dropout"
        print(f"{why}: {', '.join(elsewhere)}", file=sys.stderr)
    if foreign := [name for name in {**common, **own} if name not in known]:
        print(f"ignored, of other kinds of tasks: {', '.join(foreign)}", file=sys.stderr)
    run = replace_checked(FinetuningRunSettings(), {**of_recipe, **of_run})
    values = {task.name: {**common, **per_task.get(task.name, {}), **own} for task in tasks}
    return Plan(tasks=tasks, run=run, values=values, **options)


def _per_task(values: Any, tasks: list[Task]) -> dict[str, dict[str, Any]]:
    """Returns a recipe's hyper-parameters for single tasks, by task name."""
    found, named = {}, {task.name: task for task in tasks}
    for key, own in typed("tasks", values, dict[str, dict[str, Any]]).items():
        task = named.get(key) or load_task(key)
        known = field_names(task.plugin.hparams)
        reject_unknown(own, [name for name in known if name not in _OF_ALL_RUNS])
        found[task.name] = own
    return found


def split_hparams(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits a JSON object into hyper-parameters and run settings; the caller reads the rest."""
    of_run = field_names(FinetuningRunSettings)
    other = (TASK_NAMES, DO_TRAIN, *IGNORED_NAMES)
    reject_unknown(values, [*kinds.hparam_names(), *of_run, *other])
    overrides = typed("model_hparam_overrides", values.get("model_hparam_overrides", {}), dict)
    hparams = {name: overrides[name] for name in DROPOUT if name in overrides}  # a run's own
    hparams |= {n: v for n, v in values.items() if n not in (*of_run, *other)}
    return hparams, {name: value for name, value in values.items() if name in of_run}


def setting_of(hparams: FinetuningHParams, swept: dict[str, Any]) -> dict[str, Any]:
    """Returns the hyper-parameters that name a setting: the papers' three and swept ones."""
    return {name: getattr(hparams, name) for name in dict.fromkeys([*_SHORT, *swept])}


def folder_name(setting: dict[str, Any], init: str) -> str:
    """Returns a setting's folder name, such as `lr0.0003_wd0.01_epochs3`."""
    parts = []
    for name, value in setting.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        parts.append(f"{_SHORT.get(name, name + '-')}{text}")
    return "_".join([*parts, *([] if init == "pretrained" else [init])])


@dataclasses.dataclass(frozen=True)
class Trial:
    """A planned run."""

    folder: str  # its model directory, `OUTPUT_DIR/TASK/SETTING/trial_N`
    number: int  # N, from 0
    setting: dict[str, Any]  # swept hyper-parameters and the papers' three, for reports
    hparams: FinetuningHParams  # with the seed of this trial
    data: TaskData

    @property
    def num_steps(self) -> int:
        """Returns the training steps; as in the original, epochs are rounded up to batches."""
        if self.hparams.max_steps is not None:
            return self.hparams.max_steps
        return max(1, int(self.steps_per_epoch * present(self.hparams.num_train_epochs)))

    @property
    def steps_per_epoch(self) -> int:
        """Returns the batches per epoch; the next epoch may fill up the last one."""
        return self.data.batches_per_epoch(self.hparams)


@dataclasses.dataclass(frozen=True)
class Context:
    """The plan, strategy and pre-trained model shared by all runs of a command."""

    plan: Plan
    strategy: tf.distribute.Strategy
    vocabulary: Vocabulary
    config: BackboneConfig
    pretraining: dict[str, Any]  # hyper-parameters recorded in the model directory
    model_size: str | None  # name of the encoder's size
    checkpoint: str | None  # digest of the pre-trained weights; None if unused

    def about(self, init: str) -> dict[str, Any]:
        """Returns the pre-trained model's name, size, objective and step, for runs' records."""
        parts = storage.abspath(self.plan.model_dir).split(os.sep)
        name = "/".join(parts[-3:] if parts[-1].startswith("trial_") else parts[-1:])
        objective = self.pretraining.get("objective")
        about = {"model": name, "model_size": self.model_size, "objective": objective}
        return {**about, "checkpoint_step": None if init == "random" else self.plan.checkpoint_step}

"""What a fine-tuning command is asked to do, read and checked without TensorFlow."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from typing import Any

import storage
from data.vocabulary import Vocabulary, trained_vocabulary
from finetune import kinds
from finetune.grid import grid_points
from finetune.hparams import FinetuningHParams, RunSettings, resolve_hparams
from finetune.task import Task
from finetune.task_files import Data
from model import BackboneConfig, load_config
from settings import field_names, reject_unknown, typed
from training.model_directory import HPARAMS_FILE, read_record

TASK_NAMES = "task_names"  # the original's key for what --task says here
# Keys of the original's configuration that choose hardware or file locations: not used, flags say
# them here.
IGNORED_NAMES = ("use_tpu", "num_tpu_cores", "tpu_job_name", "tpu_name", "tpu_zone", "gcp_project")
IGNORED_NAMES += ("model_name", "data_dir", "log_examples", "predict_batch_size", "do_eval")
IGNORED_NAMES += ("debug", "use_tfrecords_if_existing")
# The model directory says these.
IGNORED_NAMES += ("model_size", "vocab_size", "embedding_size", "do_lower_case", "conv_type")
IGNORED_NAMES += ("conv_kernel_size", "linear_groups", "head_ratio", "model_hparam_overrides")
_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # free among them
FLAG_NAMES = ("do_train",)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What recipe, --hparams and flags say, each before the one it overrules."""

    model_dir: str
    data_dir: Data  # of the tasks' files, see `source_of`
    output_dir: str  # where runs are kept
    tasks: list[Task]
    run: RunSettings
    recipe: dict[str, Any]  # hyper-parameters of the recipe, for all tasks
    per_task: dict[str, dict[str, Any]]  # task name -> those of the recipe for this task
    given: dict[str, Any]  # hyper-parameters of --hparams and flags
    grid: dict[str, list]  # of the sweep
    inits: tuple[str, ...]  # "pretrained" or "random"; () as the hyper-parameters say
    train: bool  # False measures finished runs again
    show_errors: int  # number of largest errors to write for each split
    # Hyper-parameters that the devices decide where nothing else does.
    device: dict[str, Any] = dataclasses.field(default_factory=dict)

    def points(
        self, task: Task, config: BackboneConfig
    ) -> Iterator[tuple[dict[str, Any], FinetuningHParams]]:
        """Yields what the sweep varies and the resolved hyper-parameters of every setting.

        Raises:
            InputError: an unknown name or a wrong value.
        """
        inits = [{"init": init} for init in self.inits] or [{}]
        own = field_names(task.plugin.hparams)  # others may be of the other tasks' kinds
        fixed = {**self.device, **self.recipe, **self.per_task.get(task.name, {}), **self.given}
        fixed = {name: value for name, value in fixed.items() if name in own}
        reject_unknown(self.grid, field_names(*(other.plugin.hparams for other in self.tasks)))
        grid = {name: values for name, values in self.grid.items() if name in own}
        for init, swept in itertools.product(inits, grid_points(grid)):
            yield swept, resolve_hparams({**fixed, **swept, **init}, task, config)

    def takes_weights(self) -> bool:
        """Whether any run starts from the weights of `model_dir`."""
        return self.inits != ("random",)


def split_hparams(values: dict[str, Any]) -> tuple[dict, dict, list[str]]:
    """Sorts a JSON object's keys: hyper-parameters, run settings, ignored ones.

    `task_names` and flags are left to the caller.

    Raises:
        InputError: an unknown name (the nearest valid one is suggested), or one that asks for
            something that does not exist here.
    """
    hparam_names = kinds.hparam_names()
    run_names = [name for name in field_names(RunSettings) if name not in IGNORED_NAMES]
    other = (TASK_NAMES, *FLAG_NAMES, *IGNORED_NAMES)
    reject_unknown(values, [*hparam_names, *run_names, *other])

    def pick(names) -> dict:
        return {name: values[name] for name in names if name in values}

    overrides = typed("model_hparam_overrides", values.get("model_hparam_overrides", {}), dict)
    dropout = {name: overrides[name] for name in _DROPOUT if name in overrides}
    ignored = [name for name in values if name in IGNORED_NAMES]
    return {**dropout, **pick(hparam_names)}, pick(run_names), ignored


def load_model(settings: Settings) -> tuple[BackboneConfig, Vocabulary]:
    """Architecture and vocabulary of the model directory; they must fit each other."""
    config, saved = load_config(settings.model_dir), saved_hparams(settings.model_dir)
    vocabulary = trained_vocabulary(settings.model_dir, config.vocab_size, saved.get("vocabulary"))
    return config, vocabulary


def saved_hparams(model_dir: str) -> dict[str, Any]:
    """What the encoder was pre-trained with, as far as the model directory says it."""
    if not storage.exists(os.path.join(model_dir, HPARAMS_FILE)):
        return {}
    record = read_record(model_dir)
    return record["run_settings"].get("pretraining", record["hparams"])  # fine-tuned before

"""What a fine-tuning command is asked to do, read and checked without TensorFlow."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from typing import Any

from data.vocabulary import Vocabulary
from finetune.grid import grid_points
from finetune.hparams import FinetuningHParams, RunSettings, check_model_names, resolve_hparams
from finetune.task import Task
from model import BackboneConfig, load_config
from pretrain.saved_settings import load_vocabulary
from training.model_directory import HPARAMS_FILE, read_record


@dataclasses.dataclass(frozen=True)
class Settings:
    """What recipe, --hparams and flags say, each before the one it overrules.

    Attributes:
        model_dir: the model directory.
        data_dir: the folder of the tasks' files; "" where they lie beside their declarations.
        output_dir: where runs are kept.
        tasks: declarations, in order.
        run: settings that do not change scores.
        recipe: hyper-parameters of the recipe, for all tasks.
        per_task: task name -> hyper-parameters of the recipe for this task.
        given: those of --hparams and flags.
        model_values: what was said about the model, to be checked.
        grid: of the sweep.
        inits: weights to start from, "pretrained" or "random"; () as the hyper-parameters say.
        train: False measures finished runs again.
        show_errors: how many of the largest errors to write for each split.
    """

    model_dir: str
    data_dir: str
    output_dir: str
    tasks: list[Task]
    run: RunSettings
    recipe: dict[str, Any]
    per_task: dict[str, dict[str, Any]]
    given: dict[str, Any]
    model_values: dict[str, Any]
    grid: dict[str, list]
    inits: tuple[str, ...]
    train: bool
    show_errors: int

    def points(
        self, task: Task, config: BackboneConfig
    ) -> Iterator[tuple[dict[str, Any], FinetuningHParams]]:
        """Yields what the sweep varies and the resolved hyper-parameters of every setting.

        Raises:
            InputError: an unknown name or a wrong value.
        """
        inits = [{"init": init} for init in self.inits] or [{}]
        fixed = {**self.recipe, **self.per_task.get(task.name, {}), **self.given}
        for init, swept in itertools.product(inits, grid_points(self.grid)):
            yield swept, resolve_hparams({**fixed, **swept, **init}, task, config)

    @property
    def takes_weights(self) -> bool:
        """Whether any run starts from the weights of `model_dir`."""
        return self.inits != ("random",)


def load_model(settings: Settings) -> tuple[BackboneConfig, Vocabulary]:
    """Architecture and vocabulary of the model directory; they must fit each other."""
    config, saved = load_config(settings.model_dir), saved_hparams(settings.model_dir)
    vocabulary = load_vocabulary(settings.model_dir, config, saved.get("vocabulary"))
    known = {**saved, **dataclasses.asdict(config), "do_lower_case": vocabulary.do_lower_case}
    check_model_names(settings.model_values, known, settings.model_dir)
    return config, vocabulary


def saved_hparams(model_dir: str) -> dict[str, Any]:
    """What the encoder was pre-trained with, as far as the model directory says it."""
    if not os.path.exists(os.path.join(model_dir, HPARAMS_FILE)):
        return {}
    record = read_record(model_dir)
    return record["run_settings"].get("pretraining", record["hparams"])  # fine-tuned before

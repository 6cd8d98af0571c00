"""Fine-tuning on tables in memory, as the command does on files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from common import plugins as plugin_files
from common.errors import InputError
from common.files import as_path
from common.settings import field_names, read_json_object, reject_unknown
from finetune import declaration, kinds
from finetune.declaration import Task
from finetune.hparams import FinetuningRunSettings
from finetune.plan import make_plan
from finetune.readers.tables import Table
from finetune.report import REPORT_FILE
from finetune.results import rank
from finetune.run import fine_tune_all

DEV_SHARE = 0.1  # of the training table, where there is no development table
FEW_VALUES = 20  # of whole numbers: they may be labels
# What exported models call roles.
_INPUTS = {"text_a": "text", "text_b": "text_pair"}


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """Of the runs that were asked for the one of highest development score.

    Attributes:
        folder: of the run, which `convbert.load` takes.
        scores: split -> metric -> score, times 100; None where it is undefined.
        best_step: whose score is the highest; None without evaluation during training.
        report: the path of `report.md`, of all runs.
    """

    folder: str
    scores: dict[str, dict[str, float | None]]
    best_step: int | None
    report: str


def fine_tune(
    model_dir: str | os.PathLike,
    train: pd.DataFrame,
    dev: pd.DataFrame | None = None,
    *,
    output_dir: str | os.PathLike,
    test: pd.DataFrame | None = None,
    columns: Mapping[str, Any] | None = None,
    kind: str | None = None,
    metrics: Sequence[str] | None = None,
    label_range: tuple[float, float] | None = None,
    unseen_labels: bool = False,
    name: str = "table",
    hparams: Mapping[str, Any] | None = None,
    recipe: str | os.PathLike = "",
    num_trials: int | None = None,
    seed: int | None = None,
    init: str | None = None,
    plugins: Sequence[str] = (),
) -> FineTuned:
    """Fine-tunes a pre-trained encoder on tables, by the code of run_finetuning.py.

    The same call resumes after an interruption, and returns what is finished.

    Args:
        model_dir: of run_pretraining.py or checkpoints.convert.
        train, dev, test: a row for each example. Without `dev` a tenth of `train`, drawn at
            random, takes its place. `test` may have no labels.
        output_dir: of the runs and the report.
        columns: role -> column, as in a declared task (docs/tasks.md): text_a, text_b, label;
            words, tags; context, question, options, label. By default the columns that are called
            so, or text, text_pair.
        kind: of the task. By default tagging where there are words and tags, multiple_choice where
            there are a context and options, multi_label where labels are lists or several columns,
            regression where they are floats, else classification.
        metrics: the first is the headline; by default those of the kind.
        label_range: of regression; by default the lowest and the highest label of train and dev.
        unseen_labels: whether labels that only `dev` has count as wrong, instead of as an error.
        name: of the task.
        hparams: any of docs/reference.md, by name.
        recipe: a JSON file of them, such as configs/finetune_convbert.json; `hparams` go first.
        num_trials, seed, init: as the flags of run_finetuning.py.
        plugins: Python files or modules to import first.

    Raises:
        InputError: a column or a value that is missing, or what the command rejects.
        ValueError: labels of regression are no numbers.
        LossNotFinite: training diverged.
    """
    if plugins:  # otherwise those that were loaded before stay on record
        plugin_files.load([plugins] if isinstance(plugins, str) else plugins)
    model_dir, output_dir = as_path("model_dir", model_dir), as_path("output_dir", output_dir)
    given = {"train": train, "dev": dev, "test": test}
    tables = {k: x.reset_index(drop=True) for k, x in given.items() if x is not None}
    task, data = _declared(
        name, kind, tables, columns, metrics=metrics, label_range=label_range, unseen=unseen_labels
    )
    given = {n: v.item() if isinstance(v, np.generic) else v for n, v in (hparams or {}).items()}
    reject_unknown(given, [*kinds.hparam_names(), *field_names(FinetuningRunSettings)])
    plan = make_plan(
        [task],
        read_json_object(as_path("recipe", recipe), "recipe"),
        given,
        {"num_trials": num_trials, "seed": seed, "init": init},
        model_dir=model_dir,
        data_dir=data,
        output_dir=output_dir,
        grid={},
    )
    results = fine_tune_all(plan)
    best = max(results, key=lambda run: rank(results[run]))
    report = os.path.join(output_dir, REPORT_FILE)
    return FineTuned(best, results[best]["scores"], results[best].get("best_step"), report)


def _declared(
    name: str,
    kind: str | None,
    tables: dict[str, pd.DataFrame],
    columns: Mapping[str, Any] | None,
    *,
    metrics: Sequence[str] | None,
    label_range: tuple[float, float] | None,
    unseen: bool,
) -> tuple[Task, dict[str, Table]]:
    """Returns the declaration that a task in files would have, and the tables of its splits."""
    if kind is None:
        kind = _kind(tables["train"], columns)
        print(f"{name}: a {kind} task, as the columns are; `kind=` asks for another")
    roles = _columns(columns) if columns is not None else _roles(tables, kind)
    fields: dict[str, Any] = {"name": name, "kind": kind, "columns": roles}
    fields["files"] = {split: f"{split}.jsonl" for split in ("train", "dev", *tables)}
    if kind == "regression":
        both = (tables[split][roles["label"]] for split in ("train", "dev") if split in tables)
        labels = pd.concat(both).astype(float)
        fields["label_range"] = list(label_range or (float(labels.min()), float(labels.max())))
    if metrics is not None:
        fields["metrics"] = [metrics] if isinstance(metrics, str) else list(metrics)
    if unseen:
        fields["unseen_labels"] = True
    named = {} if "dev" in tables else {"dev": "`train`"}  # whose rows errors name
    if named:
        tables["dev"] = tables["train"].sample(frac=DEV_SHARE, random_state=0)
        tables["train"] = tables["train"].drop(tables["dev"].index)
    task = declaration.parse({**fields, "folders": []}, "the table")
    return task, {k: Table(named.get(k, f"`{k}`"), table) for k, table in tables.items()}


def _kind(table: pd.DataFrame, columns: Mapping[str, Any] | None) -> str:
    """The kind of a task by its columns and the type of its labels."""
    roles = columns if columns is not None else {name: name for name in table.columns}
    if {"words", "tags"} <= {*roles}:
        return "tagging"
    if {"context", "options"} <= {*roles}:
        return "multiple_choice"
    label = roles.get("label")
    if _is_list(label):
        return "multi_label"
    if label not in table.columns:
        return "classification"
    if any(map(_is_list, table[label])):
        return "multi_label"
    if not pd.api.types.is_float_dtype(table[label]):
        return "classification"
    values = np.unique(table[label].dropna().to_numpy(float))
    if len(values) <= FEW_VALUES and np.all(values == np.round(values)):
        raise InputError(
            f"`{label}` has whole numbers as floats, which may be labels or scores; say which by"
            f" kind='classification' or kind='regression'. Received: {values.tolist()}"
        )
    return "regression"


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray, pd.Index, pd.Series))


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Role -> column, or a list of columns; also by inputs' names."""
    of_input = {name: role for role, name in _INPUTS.items() if role not in columns}
    return {
        of_input.get(role, role): list(own) if _is_list(own) else own
        for role, own in columns.items()
    }


def _roles(tables: Mapping[str, pd.DataFrame], kind: str) -> dict[str, str]:
    """Role -> column, of columns that are called as roles of the kind are, or their inputs."""
    own, found = kinds.get(kind), {}
    for role in (*own.needed, *own.optional):
        names = (role, _INPUTS.get(role))
        called = next((name for name in names if name in tables["train"].columns), None)
        everywhere = all(called in table.columns for table in tables.values())
        if called is not None and (everywhere or role in own.needed):
            found[role] = called
    return found

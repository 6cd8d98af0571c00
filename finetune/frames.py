"""Fine-tuning on tables in memory, as the command does on files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from convbert.common import plugins as plugin_files
from convbert.common.errors import InputError
from convbert.common.files import as_path
from convbert.common.settings import field_names, reject_unknown
from convbert.finetune import declaration, kinds
from convbert.finetune.declaration import Task
from convbert.finetune.hparams import FinetuningRunSettings
from convbert.finetune.plan import make_plan
from convbert.finetune.readers.tables import Table
from convbert.finetune.report import REPORT_FILE
from convbert.finetune.results import rank
from convbert.finetune.run import fine_tune_all

DEV_SHARE = 0.1  # of the training table, where there is no development table
# What exported models call roles.
_INPUTS = {"text_a": "text", "text_b": "text_pair"}


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """The run of highest development score among those that were asked for.

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
    columns: Mapping[str, str] | None = None,
    kind: str | None = None,
    metrics: Sequence[str] = (),
    name: str = "table",
    hparams: Mapping[str, Any] | None = None,
    plugins: Sequence[str] = (),
) -> FineTuned:
    """Fine-tunes a pre-trained encoder on tables, by the code of run_finetuning.py.

    The same call resumes after an interruption, and returns what is finished.

    Args:
        model_dir: of run_pretraining.py or checkpoints.convert.
        train, dev, test: a row for each example. Without `dev` a tenth of `train`, drawn at
            random, takes its place. `test` may have no labels.
        output_dir: of the runs and the report.
        columns: role -> column, as in a declared task (docs/tasks.md). By default the columns that
            are called as the roles are, or text, text_pair.
        kind: of the task. By default tagging with columns for words and tags, multiple_choice for
            a context and options, multi_label with lists as labels, else classification; floats
            need it. The range of regression is that of the labels of train and dev.
        metrics: the first is the headline; by default those of the kind.
        name: of the task.
        hparams: any of docs/reference.md, by name, such as num_trials, seed, init.
        plugins: Python files or modules to import first.

    Raises:
        InputError: a column or a value that is missing, or what the command rejects.
        ValueError: labels of regression are no numbers.
        LossNotFinite: training diverged.
    """
    if plugins:  # otherwise those that were loaded before stay on record
        plugin_files.load(plugins)
    model_dir, output_dir = as_path("model_dir", model_dir), as_path("output_dir", output_dir)
    splits = {"train": train, "dev": dev, "test": test}
    tables = {k: x.reset_index(drop=True) for k, x in splits.items() if x is not None}
    task, data = _declared(tables, name, kind or _kind(train, columns), columns, metrics)
    given = {n: v.item() if isinstance(v, np.generic) else v for n, v in (hparams or {}).items()}
    reject_unknown(given, [*kinds.hparam_names(), *field_names(FinetuningRunSettings)])
    places = {"model_dir": model_dir, "data_dir": data, "output_dir": output_dir}
    plan = make_plan([task], {}, given, {}, grid={}, **places)
    results = fine_tune_all(plan)
    best = max(results, key=lambda run: rank(results[run]))
    report = os.path.join(output_dir, REPORT_FILE)
    return FineTuned(best, results[best]["scores"], results[best].get("best_step"), report)


def _declared(
    tables: dict[str, pd.DataFrame],
    name: str,
    kind: str,
    columns: Mapping[str, str] | None,
    metrics: Sequence[str],
) -> tuple[Task, dict[str, Table]]:
    """Returns the declaration that a task in files would have, and the tables of its splits."""
    roles = _roles(tables, kind) if columns is None else dict(columns)
    fields: dict[str, Any] = {"name": name, "kind": kind, "columns": roles, "folders": []}
    fields["files"] = {split: f"{split}.jsonl" for split in ("train", "dev", *tables)}
    if kind == "regression":
        both = (tables[split][roles["label"]] for split in ("train", "dev") if split in tables)
        labels = pd.concat(both).astype(float)
        fields["label_range"] = [float(labels.min()), float(labels.max())]
    if metrics:
        fields["metrics"] = list(metrics)
    named = {} if "dev" in tables else {"dev": "`train`"}  # whose rows errors name
    if named:
        tables["dev"] = tables["train"].sample(frac=DEV_SHARE, random_state=0)
        tables["train"] = tables["train"].drop(tables["dev"].index)
    task = declaration.parse(fields, "the table")
    return task, {k: Table(named.get(k, f"`{k}`"), table) for k, table in tables.items()}


def _kind(table: pd.DataFrame, columns: Mapping[str, str] | None) -> str:
    """The kind of a task by its columns and the type of its labels."""
    roles = columns if columns is not None else {name: name for name in table.columns}
    if {"words", "tags"} <= {*roles}:
        return "tagging"
    if {"context", "options"} <= {*roles}:
        return "multiple_choice"
    labels = table.get(roles.get("label"), pd.Series(dtype=object))
    if pd.api.types.is_float_dtype(labels):
        raise InputError(
            "labels that are floats may be scores, or names; say which by kind='regression' or"
            " kind='classification'"
        )
    lists = any(isinstance(value, (list, tuple, np.ndarray)) for value in labels)
    return "multi_label" if lists else "classification"


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

"""Fine-tuning on DataFrames in memory, like the command on files."""

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
from convbert.finetune.kinds.texts import INPUTS
from convbert.finetune.plan import make_plan
from convbert.finetune.readers.tables import Table
from convbert.finetune.report import REPORT_FILE
from convbert.finetune.results import rank
from convbert.finetune.run import fine_tune_all
from convbert.finetune.task_files import resolve_labels

DEV_SHARE = 0.1  # share of the training table, if there is no development table


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """The run with the highest development score among the requested runs."""

    folder: str  # for `convbert.load`
    scores: dict[str, dict[str, float | None]]  # split -> metric -> score, times 100, if defined
    best_step: int | None  # with the highest score; None without evaluation during training
    report: str  # path of `report.md` on all runs


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
    label_range: Sequence[float] | None = None,
    plugins: str | Sequence[str] = (),
) -> FineTuned:
    """Fine-tunes a pre-trained encoder on tables, with the code of run_finetuning.py.

    The same call resumes after an interruption, and returns finished results.

    Args:
        model_dir: model directory of run_pretraining.py or checkpoints.convert.
        train, dev, test: tables with a row per example. Without `dev`, a random tenth of `train` is
            held out. `test` may be unlabelled.
        output_dir: folder for the runs and the report.
        columns: role -> column, as in a declared task (docs/tasks.md). Default: columns named as
            the roles, or text, text_pair.
        kind: kind of the task. Default: by the columns, see docs/python.md; required for float
            labels and for text embeddings.
        metrics: names of metrics, the headline first. Default: the kind's metrics.
        name: the task's name.
        label_range: lowest and highest label of kind regression or embedding. Default: those of
            the tables; for embeddings 0 and 1, the cosines themselves, if all are within.
        hparams: values by name, see docs/reference.md, such as num_trials, seed, init.
        plugins: Python files or modules to import first.

    Raises InputError if a column or value is missing, or the command would reject the input;
    LossNotFinite if training diverged.
    """
    if plugins:  # otherwise plug-ins loaded earlier stay recorded
        plugin_files.load(plugins)
    model_dir, output_dir = as_path("model_dir", model_dir), as_path("output_dir", output_dir)
    splits = {"train": train, "dev": dev, "test": test}
    for split, table in splits.items():
        if not isinstance(table, pd.DataFrame) and (table is not None or split == "train"):
            raise InputError(f"`{split}` should be a DataFrame. Received: {table!r:.60}")
    tables = {k: x.reset_index(drop=True) for k, x in splits.items() if x is not None}
    kind = kind or _kind(train, columns)
    task = _declared(tables, name, kind, columns, metrics, label_range)
    given = {n: v.item() if isinstance(v, np.generic) else v for n, v in (hparams or {}).items()}
    reject_unknown(given, [*kinds.hparam_names(), *field_names(FinetuningRunSettings)])
    places = {"model_dir": model_dir, "data_dir": _splits(tables), "output_dir": output_dir}
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
    label_range: Sequence[float] | None = None,
) -> Task:
    """Returns the task's declaration, as for files; its labels are those of all of `train`."""
    if name in declaration.TASKS:
        raise InputError(f"`name` should be another than those of built-in tasks. Received: {name}")
    roles = _roles(tables, kind) if columns is None else dict(columns)
    if unnamed := [role for role in kinds.get(kind).needed if role not in roles]:
        there = [*map(str, tables["train"].columns)]
        wanted = f"`columns` of kind {kind} should name that of {', '.join(unnamed)}, such as"
        raise InputError(f"{wanted} {{{unnamed[0]!r}: {there[0]!r}}}. Received: {', '.join(there)}")
    fields: dict[str, Any] = {"name": name, "kind": kind, "columns": roles, "folders": []}
    fields["files"] = {split: f"{split}.jsonl" for split in ("train", "dev", *tables)}
    if label_range is not None:
        fields["label_range"] = list(label_range)
    elif "label_range" in kinds.get(kind).fields and "label" in roles:
        fields |= _label_range(tables, kind, roles["label"])
    if metrics:
        fields["metrics"] = [metrics] if isinstance(metrics, str) else list(metrics)
    varied = {role: roles[role] for role in kinds.get(kind).varied if role in roles}
    for split, table in {"dev": tables["train"], **tables}.items():
        if lacking := {role for role, column in varied.items() if column not in table}:
            own = {role: column for role, column in roles.items() if role not in lacking}
            fields.setdefault("per_split", {})[split] = {"columns": own}
    table = Table("`train`", tables["train"])
    return resolve_labels(declaration.parse(fields, "the table"), {"train": table})


def _splits(tables: dict[str, pd.DataFrame]) -> dict[str, Table]:
    """Returns the tables with their names in errors; without `dev`, a tenth of `train` is it."""
    names = {split: f"`{split}`" for split in tables}
    if "dev" not in tables:
        dev = tables["train"].sample(frac=DEV_SHARE, random_state=0)
        if dev.empty:
            raise InputError(f"`dev` should be given, as `train` has {len(tables['train'])} rows")
        tables = {**tables, "train": tables["train"].drop(dev.index), "dev": dev}
        names["dev"] = "`train`"
    return {split: Table(names[split], table) for split, table in tables.items()}


def _label_range(tables: Mapping[str, pd.DataFrame], kind: str, column: str) -> dict[str, Any]:
    """Returns the field `label_range` of the tables' scores, {} for cosines."""
    scored = [
        table[column] for split, table in tables.items() if split != "test" and column in table
    ]
    labels = pd.to_numeric(pd.concat([pd.Series(dtype=float), *scored]), errors="coerce")
    low, high = labels[np.isfinite(labels)].agg(["min", "max"])
    cosines = kind == "embedding" and 0 <= low <= high <= 1
    # Without two scores, reading names the column, or the row.
    return {"label_range": [float(low), float(high)]} if low < high and not cosines else {}


def _kind(table: pd.DataFrame, columns: Mapping[str, str] | None) -> str:
    """Returns the kind of a task by its columns and the type of its labels."""
    roles = columns if columns is not None else {name: name for name in table.columns}
    for kind in kinds.names():
        needed = {*kinds.get(kind).needed} - {"label"}
        if needed and "text_a" not in needed and needed <= {*roles}:
            return kind
    labels = table.get(roles.get("label"), pd.Series(dtype=object))
    if pd.api.types.is_float_dtype(labels):
        raise InputError(
            "float labels may be scores or names; choose kind='regression' or kind='classification'"
        )
    lists = any(isinstance(value, (list, tuple, np.ndarray)) for value in labels)
    return "multi_label" if lists else "classification"


def _roles(tables: Mapping[str, pd.DataFrame], kind: str) -> dict[str, str]:
    """Returns role -> column, for columns named as the kind's roles or their inputs."""
    own, found = kinds.get(kind), {}
    for role in (*own.needed, *own.optional):
        names = (role, INPUTS.get(role))
        first = [tables["train"], *(tables.values() if role in own.varied else ())]
        called = next((n for table in first for n in names if n in table.columns), None)
        everywhere = all(called in table.columns for table in tables.values())
        if called is not None and (everywhere or role != "id"):  # else reading names the column
            found[role] = called
    return found

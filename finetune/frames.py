"""Fine-tuning on tables in memory: files and a declaration of them, then as the command does."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import plugins as plugin_files
import storage
from errors import InputError
from files import write_bytes, write_json
from finetune import declaration, kinds
from finetune.choice import choose_run
from finetune.hparams import RunSettings
from finetune.kinds.base import Kind
from finetune.report import REPORT_FILE
from finetune.settings import Settings, split_hparams
from finetune.start import fine_tuned
from finetune.task import Task
from settings import read_json_object, replace_checked

DEV_SHARE = 0.1  # of the training table, where there is no development table
DATA_FOLDER = "data"
# Other names of roles, those of exported models.
_ROLES = {"text": "text_a", "text_pair": "text_b"}


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """The run of highest development score.

    Attributes:
        folder: of the run, which `convbert.load` takes.
        scores: split -> metric -> score, times 100; None where it is undefined.
        report: the path of `report.md`, of all runs.
    """

    folder: str
    scores: dict[str, dict[str, float | None]]
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
    name: str = "table",
    hparams: Mapping[str, Any] | None = None,
    recipe: str = "",
    num_trials: int = 1,
    seed: int = 0,
    init: str = "pretrained",
    plugins: Sequence[str] = (),
) -> FineTuned:
    """Fine-tunes a pre-trained encoder on tables, by the code of run_finetuning.py.

    The same call resumes after an interruption, and returns what is finished.

    Args:
        model_dir: of run_pretraining.py or checkpoints.convert.
        train, dev, test: a row for each example. Without `dev` a tenth of `train`, drawn at
            random, takes its place. `test` may have no labels.
        output_dir: of the tables, the runs and the report.
        columns: role -> column, as in a declared task (docs/tasks.md): text_a, text_b, label;
            words, tags; context, question, options, label. By default the columns that are called
            so, or text, text_pair.
        kind: of the task. By default tagging where there are tags, multiple_choice where there are
            options, regression where labels are floats, else classification.
        metrics: the first is the headline; by default those of the kind.
        name: of the task.
        hparams: any of docs/reference.md, by name.
        recipe: a JSON file of them, such as configs/finetune_convbert.json.
        num_trials, seed, init: as the flags of run_finetuning.py.
        plugins: Python files or modules to import first.

    Raises:
        InputError: a column that is missing, a value that is none, or what the command rejects.
            No file is written then.
        LossNotFinite: training diverged.
    """
    plugin_files.load(plugins)
    tables = _tables(train, dev, test)
    model_dir, output_dir = os.fspath(model_dir), os.fspath(output_dir)
    roles = dict(columns) if columns is not None else _roles(tables["train"])
    kind = kind or _kind(tables["train"], roles)
    lines = {split: json_lines(split, table, roles, kind) for split, table in tables.items()}
    digest = hashlib.sha256(b"\0".join(lines.values())).hexdigest()[:12]
    folder = os.path.join(output_dir, DATA_FOLDER, digest)
    fields: dict[str, Any] = {"name": name, "kind": kind, "columns": roles}
    fields["files"] = {split: f"{split}.jsonl" for split in tables}
    if kind == "regression":
        fields["label_range"] = _label_range(tables, roles)
    if metrics is not None:
        fields["metrics"] = list(metrics)
    task = declaration.parse({**fields, "folders": [folder]}, "columns")
    flags = {"num_trials": num_trials, "seed": seed, "init": init}
    settings = _settings(model_dir, output_dir, task, hparams or {}, flags, recipe)
    new = not storage.exists(folder)
    storage.makedirs(folder)
    try:
        for split, text in lines.items():
            write_bytes(os.path.join(folder, f"{split}.jsonl"), text)
        write_json(os.path.join(folder, f"{name}.json"), fields)
        with fine_tuned(settings, plugins):
            run = choose_run(os.path.join(output_dir, name)).run
    except InputError:
        if new:
            storage.rmtree(folder)
        raise
    return FineTuned(run["folder"], run["scores"], os.path.join(output_dir, REPORT_FILE))


def _tables(train: Any, dev: Any, test: Any) -> dict[str, pd.DataFrame]:
    """The tables by split, with rows numbered from 0."""
    given = {"train": train, "dev": dev, "test": test}
    for split, table in given.items():
        if not isinstance(table, pd.DataFrame) and (split == "train" or table is not None):
            raise InputError(f"`{split}` should be a DataFrame. Received: {type(table).__name__}")
    tables = {split: table for split, table in given.items() if table is not None}
    if dev is None:
        taken = train.reset_index(drop=True).sample(frac=DEV_SHARE, random_state=0)
        tables |= {"train": train.reset_index(drop=True).drop(taken.index), "dev": taken}
    for split, table in tables.items():
        if table.empty:
            raise InputError(f"`{split}` should have at least one row. Received: none")
    return {split: table.reset_index(drop=True) for split, table in tables.items()}


def _roles(table: pd.DataFrame) -> dict[str, str]:
    """Role -> column, of columns that are called as roles are."""
    known = {role for name in kinds.names() for role in _roles_of(kinds.get(name))}
    found = {_ROLES.get(column, column): column for column in table.columns}
    return {role: column for role, column in found.items() if role in known}


def _roles_of(kind: Kind) -> tuple[str, ...]:
    return (*kind.needed, *kind.optional)


def _kind(table: pd.DataFrame, roles: Mapping[str, Any]) -> str:
    """The kind of a task by its columns and the type of its labels."""
    if "tags" in roles:
        return "tagging"
    if "options" in roles:
        return "multiple_choice"
    label = roles.get("label")
    is_float = label in table.columns and pd.api.types.is_float_dtype(table[label])
    return "regression" if is_float else "classification"


def json_lines(split: str, table: pd.DataFrame, roles: Mapping[str, Any], kind: str) -> bytes:
    """The rows as JSON lines, of the columns that have a role."""
    target = kinds.get(kind).target
    columns: dict[str, bool] = {}  # name -> whether it may be missing
    for role, names in roles.items():
        hidden = split == "test" and role == target
        columns |= dict.fromkeys([names] if isinstance(names, str) else names, hidden)
    lacking = [name for name, hidden in columns.items() if name not in table.columns]
    lacking = [name for name in lacking if not columns[name]]
    if lacking:
        raise InputError(
            f"`{split}` should have the column {', '.join(map(repr, lacking))}. Received:"
            f" {', '.join(map(repr, table.columns))}"
        )
    label = roles.get(target) if kinds.get(kind).has_labels else None
    lines = []
    for number, row in enumerate(zip(*(table[name] for name in columns if name in table.columns))):
        values = {}
        for name, value in zip((name for name in columns if name in table.columns), row):
            where = f"`{split}`, row {number}: `{name}`"
            value = _plain(where, value, columns[name])
            values[name] = str(value) if name == label and isinstance(value, (int, bool)) else value
        lines.append(json.dumps(values, ensure_ascii=False))
    return "\n".join([*lines, ""]).encode()


def _plain(where: str, value: Any, may_be_missing: bool) -> Any:
    """A cell as JSON has it; None where it may be missing and is."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(where, item, False) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        if may_be_missing:
            return None
        raise InputError(f"{where} is missing")
    if not isinstance(value, (str, int, float, bool)):
        raise InputError(f"{where} should be a text or a number. Received: {value!r:.60}")
    return value


def _label_range(tables: Mapping[str, pd.DataFrame], roles: Mapping[str, Any]) -> list[float]:
    """The lowest and the highest label of all tables."""
    label = roles.get("label")
    found = [table[label] for table in tables.values() if label in table.columns]
    try:
        values = pd.concat(found).astype(float) if found else pd.Series([], dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"`{label}` should be numbers ({error})") from error
    if values.nunique() < 2:
        raise InputError(f"`{label}` should have at least two values. Received: {values.nunique()}")
    return [float(values.min()), float(values.max())]


def _settings(
    model_dir: str,
    output_dir: str,
    task: Task,
    given: Mapping[str, Any],
    run: Mapping[str, Any],
    recipe: str,
) -> Settings:
    """What the command would be asked; `given` are hyper-parameters and `run` flags."""
    values = read_json_object(recipe, "recipe")
    for name in ("about", "tasks"):
        values.pop(name, None)
    hparams, of_run, model_values, _ = split_hparams({**values, **given})
    hparams |= {"seed": run["seed"]}
    return Settings(
        model_dir=model_dir,
        data_dir="",
        output_dir=output_dir,
        tasks=[task],
        run=replace_checked(RunSettings(), {**of_run, "num_trials": run["num_trials"]}),
        recipe={},
        per_task={},
        given=hparams,
        model_values=model_values,
        grid={},
        inits=(run["init"],),
        train=True,
        show_errors=0,
    )

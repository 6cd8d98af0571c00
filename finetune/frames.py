"""Fine-tuning on tables in memory: files and a declaration of them, then as the command does."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import plugins as plugin_files
import storage
from errors import InputError
from files import as_path, is_unicode, write_bytes
from finetune import declaration, kinds
from finetune.hparams import RunSettings
from finetune.report import REPORT_FILE
from finetune.results import rank
from finetune.settings import FLAG_NAMES, TASK_NAMES, Settings, split_hparams
from finetune.start import fine_tuned
from finetune.task import Task
from settings import read_json_object, replace_checked

DEV_SHARE = 0.1  # of the training table, where there is no development table
DATA_FOLDER = "data"
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
        output_dir: of the tables, the runs and the report.
        columns: role -> column, as in a declared task (docs/tasks.md): text_a, text_b, label;
            words, tags; context, question, options, label. By default the columns that are called
            so, or text, text_pair.
        kind: of the task. By default tagging where there are words and tags, multiple_choice where
            there are a context and options, multi_label where labels are lists or several columns,
            regression where they are floats, else classification.
        metrics: the first is the headline; by default those of the kind.
        label_range: of regression; by default the lowest and the highest label of train and dev.
        name: of the task.
        hparams: any of docs/reference.md, by name.
        recipe: a JSON file of them, such as configs/finetune_convbert.json; `hparams` go first.
        num_trials, seed, init: as the flags of run_finetuning.py.
        plugins: Python files or modules to import first.

    Raises:
        InputError: a column that is missing, a value that is none, or what the command rejects.
            Tables that were written for this call are removed.
        LossNotFinite: training diverged.
    """
    if plugins:  # otherwise those that were loaded before stay on record
        plugin_files.load([plugins] if isinstance(plugins, str) else plugins)
    model_dir, output_dir = as_path("model_dir", model_dir), as_path("output_dir", output_dir)
    if storage.isfile(output_dir):
        raise InputError(f"{output_dir}: `output_dir` should be a folder. Received: a file")
    tables = _tables(train, dev, test)
    if columns is not None and not isinstance(columns, Mapping):
        raise InputError(
            f"`columns` should be a mapping of roles to columns. Received: {columns!r:.60}"
        )
    if kind is None:
        kind = _kind(tables["train"], columns)
        print(f"{name}: a {kind} task, as the columns are; `kind=` asks for another")
    roles = _lists(columns, kind) if columns is not None else _roles(tables, kind)
    drawn = {} if "dev" in tables else _drawn(tables["train"])
    splits = _splits(tables, drawn, roles, kind)
    fields: dict[str, Any] = {"name": name, "kind": kind, "columns": roles}
    fields["files"] = {split: f"{split}.jsonl" for split in splits}
    if kind == "regression":
        fields["label_range"] = list(label_range or _label_range(tables, roles))
    if metrics is not None:
        fields["metrics"] = [metrics] if isinstance(metrics, str) else list(metrics)
    content = {fields["files"][split]: text for split, text in splits.items()}
    content[f"{name}.json"] = json.dumps(fields, indent=2, ensure_ascii=False).encode()
    digest = hashlib.sha256(b"\0".join(content.values())).hexdigest()[:12]
    folder = os.path.join(output_dir, DATA_FOLDER, digest)
    task = declaration.parse({**fields, "folders": [folder]}, "the table")
    flags = {"num_trials": num_trials, "seed": seed, "init": init}
    settings = _settings(model_dir, output_dir, task, hparams or {}, flags, recipe)
    return _run(settings, folder, content, drawn)


def _run(
    settings: Settings,
    folder: str,
    content: Mapping[str, bytes],
    drawn: Mapping[str, Sequence[int]],
) -> FineTuned:
    """Writes the files of a task into its folder, unless it is there, and fine-tunes on them."""
    written = None if storage.exists(folder) else _write(folder, content)
    try:
        with fine_tuned(settings) as results:
            best = max(results, key=lambda run: rank(results[run]))
    except InputError as error:
        if written is not None:
            storage.rmtree(written)
        raise InputError(in_rows(str(error), folder, drawn)) from error
    report = os.path.join(settings.output_dir, REPORT_FILE)
    return FineTuned(best, results[best]["scores"], results[best].get("best_step"), report)


def in_rows(said: str, folder: str, drawn: Mapping[str, Sequence[int]] | None = None) -> str:
    """What is said of lines of the files in a folder, of rows of the tables they were made from.

    Args:
        drawn: split -> rows of the training table, of splits that were drawn from it.
    """

    def row(found: re.Match) -> str:
        split, number = found[1], int(found[2]) - 1
        if drawn and split in drawn:
            split, number = "train", drawn[split][number]
        return f"`{split}`, row {number}"

    said = re.sub(re.escape(folder) + r"/(\w+)\.jsonl, line (\d+)", row, said)
    return re.sub(re.escape(folder) + r"/(\w+)\.jsonl", r"`\1`", said)


def _write(folder: str, content: Mapping[str, bytes]) -> str:
    """Writes files into a new folder; the folder to remove to have it undone."""
    parent = os.path.dirname(folder)
    new = folder if storage.exists(parent) else parent
    storage.makedirs(folder)
    for name, text in content.items():
        write_bytes(os.path.join(folder, name), text)
    return new


def _tables(train: Any, dev: Any, test: Any) -> dict[str, pd.DataFrame]:
    """The tables by split, with rows numbered from 0."""
    given = {"train": train, "dev": dev, "test": test}
    tables = {}
    for split, table in given.items():
        if table is None and split != "train":
            continue
        if not isinstance(table, pd.DataFrame):
            raise InputError(f"`{split}` should be a DataFrame. Received: {type(table).__name__}")
        if table.empty:
            raise InputError(f"`{split}` should have at least one row. Received: none")
        tables[split] = table.reset_index(drop=True)
    return tables


def _drawn(train: pd.DataFrame) -> dict[str, list[int]]:
    """The rows of `train` that stay, and those that are taken for the development split."""
    taken = train.sample(frac=DEV_SHARE, random_state=0).index
    if taken.empty:
        raise InputError(
            f"`train` should have at least 10 rows where there is no `dev`. Received: {len(train)}"
        )
    return {"train": train.index.drop(taken).tolist(), "dev": taken.tolist()}


def _splits(
    tables: Mapping[str, pd.DataFrame],
    drawn: Mapping[str, Sequence[int]],
    roles: Mapping[str, Any],
    kind: str,
) -> dict[str, bytes]:
    """The JSON lines of each split; errors name the rows of the tables that were given."""
    found = {split: json_lines(split, table, roles, kind) for split, table in tables.items()}
    lines = found["train"].splitlines(keepends=True)
    return found | {split: b"".join(lines[row] for row in rows) for split, rows in drawn.items()}


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
    return "regression" if pd.api.types.is_float_dtype(table[label]) else "classification"


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray, pd.Index, pd.Series))


def _lists(columns: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Role -> column, or a list of columns where the kind takes one; also by inputs' names."""
    of_input = {name: role for role, name in _INPUTS.items() if role not in columns}
    found = {
        of_input.get(role, role): list(own) if _is_list(own) else own
        for role, own in columns.items()
    }
    for role, column in found.items():
        if isinstance(column, list) and role not in kinds.get(kind).list_roles:
            raise InputError(
                f"`columns` of {kind} should name one column for `{role}`. Received: {column}"
            )
    return found


def _roles(tables: Mapping[str, pd.DataFrame], kind: str) -> dict[str, str]:
    """Role -> column, of columns that are called as roles of the kind are, or their inputs."""
    own, found = kinds.get(kind), {}
    names = [list(table.columns) for table in tables.values()]
    for role in (*own.needed, *own.optional):
        called = next((name for name in (role, _INPUTS.get(role)) if name in names[0]), None)
        everywhere = all(called in columns for columns in names)
        if called is not None and (everywhere or role in own.needed):
            found[role] = called
    missing = [role for role in own.needed if role not in found]
    if missing:
        wanted = ", ".join(_INPUTS.get(role, role) for role in own.needed)
        raise InputError(
            f"`train` should have the columns {wanted}, for {kind}; or `columns` should say what"
            f" they are called. Received: {', '.join(map(repr, names[0]))}"
        )
    return found


def json_lines(split: str, table: pd.DataFrame, roles: Mapping[str, Any], kind: str) -> bytes:
    """The rows of a table as JSON lines, of the columns that have a role.

    Raises:
        InputError: a column is missing, or there twice; a value is missing, or of a type that JSON
            does not have. Names `split`.
    """
    own = kinds.get(kind)
    may_be_missing: dict[str, bool] = {}  # by column
    for role, column in roles.items():
        hidden = split == "test" and role == own.target
        columns = column if isinstance(column, (list, tuple)) else [column]
        may_be_missing |= dict.fromkeys(columns, hidden)
    for column, hidden in may_be_missing.items():
        count = list(table.columns).count(column)
        if not isinstance(column, str) or count > 1 or not (count or hidden):
            there = "twice" if count > 1 else "not" if isinstance(column, str) else "no text"
            raise InputError(
                f"`{split}` should have the column {column!r} once, called by a text; it is"
                f" {there} there. Received: {', '.join(map(repr, table.columns))}"
            )
    wanted = [column for column in may_be_missing if column in table.columns]
    label = roles.get(own.target) if own.has_labels else None
    lines = []
    for number, row in enumerate(zip(*(table[column] for column in wanted), strict=True)):
        values = {}
        for column, value in zip(wanted, row, strict=True):
            where = f"`{split}`, row {number}: `{column}`"
            value = _plain(where, value, may_be_missing[column])
            values[column] = _label(value) if column == label else value
        lines.append(json.dumps(values, ensure_ascii=False))
    return "\n".join([*lines, ""]).encode()


def _label(value: Any) -> Any:
    """A label, or a list of them, as text."""
    if isinstance(value, list):
        return [_label(item) for item in value]
    return str(value) if isinstance(value, (int, bool)) else value


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
    if isinstance(value, float) and math.isinf(value):
        raise InputError(f"{where} should be finite. Received: {value}")
    if not isinstance(value, (str, int, float, bool)) or not is_unicode(value):
        raise InputError(f"{where} should be a text or a number. Received: {value!r:.60}")
    return value


def _label_range(tables: Mapping[str, pd.DataFrame], roles: Mapping[str, Any]) -> list[float]:
    """The lowest and the highest label of training and development."""
    label = roles.get("label")
    try:
        given = [tables[split][label] for split in ("train", "dev") if split in tables]
        values = pd.concat(given).astype(float)
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
    flags: Mapping[str, Any],
    recipe: str | os.PathLike,
) -> Settings:
    """What the command would be asked; `flags` are None where they are not said."""
    values = read_json_object(as_path("recipe", recipe), "recipe")
    values.pop("about", None)
    own = values.pop("tasks", {}).get(task.name, {})
    given = {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}
    hparams, of_run, model_values, ignored = split_hparams({**values, **own, **given})
    ignored += [name for name in (TASK_NAMES, *FLAG_NAMES) if name in given]
    if ignored:
        raise InputError(f"`hparams` should be those of a table. Received: {', '.join(ignored)}")
    if flags["seed"] is not None:
        hparams["seed"] = flags["seed"]
    if flags["num_trials"] is not None:
        of_run["num_trials"] = flags["num_trials"]
    return Settings(
        model_dir=model_dir,
        data_dir="",
        output_dir=output_dir,
        tasks=[task],
        run=replace_checked(RunSettings(), of_run),
        recipe={},
        per_task={},
        given=hparams,
        model_values=model_values,
        grid={},
        inits=() if flags["init"] is None else (flags["init"],),
        train=True,
        show_errors=0,
    )

"""Task declarations: kind, files, columns, labels and metrics of a task, as JSON.

Built-in tasks (tasks.json) are declared in the same way as users' tasks.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from convbert.common import storage
from convbert.common.errors import InputError, located
from convbert.common.files import read_json
from convbert.common.settings import (
    check_setting,
    checked_values,
    did_you_mean,
    reject_unknown,
    typed,
)
from convbert.finetune import kinds
from convbert.finetune.kinds.base import Kind
from convbert.finetune.readers.lines import read_object


@dataclasses.dataclass(frozen=True)
class Task:
    """The declaration of a task; docs/tasks.md documents the fields for users, and formats."""

    name: str  # also the folder of its results
    kind: str  # one of `finetune.kinds.names()`; code uses `plugin`
    # Split -> file, in the data folder or one of `folders`, or folder (race); may be a pattern
    # ("*-ud-train.conllu"), or a tuple of names, the first existing one is read.
    files: dict[str, str | tuple[str, ...]]
    format: str  # one of `task_files.READERS`
    columns: dict[str, str | int]  # role -> column, by name or number (from the end if negative)
    metrics: tuple[str, ...]  # names among those of the kind; the first is the main one
    train: str = "train"
    dev: tuple[str, ...] = ("dev",)  # the first gives the headline
    test: tuple[str, ...] = ("test",)  # labels may be hidden
    labels: tuple[str, ...] = ()  # in the outputs' order; () if `resolve_labels` collects them
    symmetric: bool = False  # training shows both orders of two texts (see `double_unordered`)
    label_range: tuple[float, float] = (0.0, 1.0)  # the network learns (label - low) / (high - low)
    tfds: str | None = None  # the tensorflow-datasets name of a built-in task, e.g. "glue/cola"
    version_2: bool = False  # for spans: whether questions may be unanswerable
    header: bool = True  # whether tables begin with a line of column names
    # Split -> {"columns": ..., "header": ...}, for a split with another layout.
    per_split: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    # Whether texts may be empty, and rows with a wrong number of fields are skipped and counted in
    # the log (never in test splits); some official files have such rows.
    lenient: bool = False
    # Of the files: relative ones, below the data folder, are tried before it, absolute ones (of a
    # declaration) after it.
    folders: tuple[str, ...] = ()
    # Default of the hyper-parameter; not recorded with the task.
    num_train_epochs: float | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._check()
        self.plugin.check(self)

    @property
    def plugin(self) -> Kind:
        """The kind of the task; InputError if no kind of this name is registered."""
        return kinds.get(self.kind)

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits: training, development, test."""
        return (self.train, *self.dev, *self.test)

    def columns_of(self, split: str) -> dict[str, str | int]:
        """Returns the columns of one split: `columns`, unless `per_split` has others."""
        return self.per_split.get(split, {}).get("columns", self.columns)

    def shares(self, labels: Sequence[float]) -> np.ndarray:
        """Returns labels scaled from `label_range` to [0, 1], float32 [n]."""
        low, high = self.label_range
        return ((np.array(labels, np.float64) - low) / (high - low)).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON object from which `declaration.parse` makes an equal task."""
        values = dataclasses.asdict(self)
        del values["num_train_epochs"]
        return json.loads(json.dumps(values))  # lists instead of tuples

    def _check(self) -> None:
        """Raises InputError for a declaration that is invalid for all kinds."""
        kind, splits = self.plugin, self.splits
        unlisted, (low, high) = sorted({*self.files, *self.per_split} - {*splits}), self.label_range
        name = self.name.isprintable() and not set(self.name) & set("/\\")
        formats = f"among {', '.join(kind.formats)}"
        of_split = f"the files of the splits {', '.join(splits)}"
        for fits, field, expectation in (
            (self.format in kind.formats, "format", f"{formats}, or the files' extension"),
            (name and self.name not in ("", ".", ".."), "name", "usable as a folder's name"),
            (self.metrics, "metrics", "the name of at least one score"),
            (len(set(splits)) == len(splits), "splits", "named once each"),
            (set(splits) <= set(self.files), "files", of_split),
            (
                not unlisted,
                "files",
                f"{of_split}, also in `per_split`, unlike {', '.join(unlisted)}",
            ),
            (self.dev, "files", "those of a development split, too, such as dev or validation"),
            (kind.has_labels or not self.labels, "labels", f"left out of a {kind.name} task"),
            (len(set(self.labels)) == len(self.labels) != 1, "labels", "distinct, at least two"),
            (low < high, "label_range", "[low, high]"),
            (self.header or self.format in ("tsv", "csv"), "header", "of tsv and csv files only"),
        ):
            check_setting(self, bool(fits), field, expectation)
        for field in _OF_KINDS:
            fits = field in kind.fields or getattr(self, field) == getattr(Task, field)
            check_setting(self, fits, field, f"left out of a {kind.name} task")


def load_task(name_or_json_path: str) -> Task:
    """Loads a built-in task by name (in our or ELECTRA's spelling), or a JSON file's task."""
    name = name_or_json_path.strip()
    if name.endswith(".json") or storage.isfile(name):
        return read(name)
    key = ALIASES.get(name.lower(), name.lower())
    if key in TASKS:
        return TASKS[key]
    raise InputError(
        f"The task should be one of {', '.join(TASKS)}, or the path of a JSON file that "
        f"declares a task. Received: {name_or_json_path!r}"
        f"{', a folder' if storage.isdir(name) else ''}."
        f"{did_you_mean(key, [*TASKS, *ALIASES])}"
    )


def read(path: str) -> Task:
    """Reads a declaration; name and folder default to those of its file."""
    values = read_object(path)
    folder = os.path.dirname(storage.abspath(path))
    stem = os.path.splitext(os.path.basename(path))[0]
    # ".json" has no stem: the results' folder would be hidden.
    values.setdefault("name", os.path.basename(folder) if stem.startswith(".") else stem)
    values.setdefault("folders", [folder])
    task = parse(values, path)
    with located(path):
        check_setting(task, task.name not in TASKS, "name", "another than those of built-in tasks")
    return task


def parse(values: dict[str, Any], where: str) -> Task:
    """Converts a JSON object to a task; errors begin with `where`.

    `format` defaults to that of the files' extension, `metrics` to the kind's, `columns` to those
    of the training split in `per_split`; `dev` and `test` to the splits in `files` whose names
    begin with "dev" or "val", and with "test".
    """
    with located(where):
        values = {**dict.fromkeys(("name", "kind", "files")), **values}
        if isinstance(labels := values.get("labels"), (list, tuple)):
            # [0, 1] means ["0", "1"], as they look the same in files.
            values["labels"] = [str(item) if type(item) is int else item for item in labels]
        fields = checked_values(Task, values)
        for split, layout in fields.get("per_split", {}).items():
            reject_unknown(layout, [*_LAYOUT])
            for key, value in layout.items():
                layout[key] = typed(f"per_split[{split!r}][{key!r}]", value, _LAYOUT[key])
        files, kind = fields["files"], kinds.get(fields["kind"])
        for key, beginnings in (("dev", ("dev", "val")), ("test", ("test",))):
            said = {fields.get("train"), *fields.get("dev", ()), *fields.get("test", ())}
            rest = (split for split in files if split.startswith(beginnings) and split not in said)
            fields.setdefault(key, tuple(rest))
        fields.setdefault("format", _format(fields, kind))
        trained = fields.get("per_split", {}).get(fields.get("train", "train"), {})
        fields["columns"] = fields.get("columns") or trained.get("columns", {})
        first = fields.get("per_split", {}).get(next(iter(fields["dev"]), ""), {})
        roles = first.get("columns", fields["columns"])  # of the first development split
        fields.setdefault("metrics", kind.default_metrics_of(roles))
        return Task(**fields)


def _format(fields: dict[str, Any], kind: Kind) -> str | None:
    """Returns the format by the training file's extension, or None, which Task rejects."""
    name = fields["files"].get(fields.get("train", "train"), "")
    first = name if isinstance(name, str) else next(iter(name), "")
    extension = os.path.splitext(first)[1].lower()
    return next((known for known, end in kind.formats.items() if end == extension), None)


_OF_KINDS = ("symmetric", "label_range", "version_2", "lenient")  # see `Kind.fields`
_LAYOUT = {"columns": dict[str, str | int], "header": bool}  # of an entry of `per_split`
_BUILT_IN = read_json(str(pathlib.Path(__file__).with_name("tasks.json")))
TASKS = {name: parse({"name": name, **own}, name) for name, own in _BUILT_IN["tasks"].items()}
GLUE_TASKS = tuple(_BUILT_IN["glue"])  # the eight in the papers' average
ALIASES, TFDS_TEXTS = _BUILT_IN["aliases"], _BUILT_IN["tfds_texts"]

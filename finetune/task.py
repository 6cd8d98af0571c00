"""What a fine-tuning task is: its kind, its files and columns, its labels and its scores.

A built-in task is a row of the table in finetune/glue.py; a user's own task is a JSON file with
the fields of `Task` (finetune/declaration.py).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from errors import InputError
from finetune import kinds
from finetune.kinds.base import Kind


@dataclasses.dataclass(frozen=True)
class Task:
    """The declaration of a task.

    Attributes:
        name: the task's name, also its folder among the results.
        kind: the name of its kind, one of `finetune.kinds.names()`; code asks `plugin`.
        train: the name of the training split.
        dev: the names of the development splits; the first one is the headline.
        test: the names of the test splits, whose labels may be hidden (the label column may be
            missing there).
        files: split -> file, in the data folder or one of `folders`; a name may be a pattern
            ("*-ud-train.conllu"), or a tuple of names of which the first that exists is read. For
            format "tfds": split -> split of the dataset, or "dataset@split".
        format: how the files are written: tsv (no quoting at all, as GLUE's), csv (quoted), jsonl,
            conll (columns between blanks, blank line between sentences), conllu, squad, tfds.
        columns: role -> column, by name or, counted from 0 (from the end if negative), by number.
            Roles: text_a, text_b, label, id; words, tags for tagging.
        per_split: split -> {"columns": ..., "header": ...}, for a split laid out differently.
        header: whether tables begin with a line of column names.
        delimiter: the character between the columns of tables; None: a tab (tsv) or a comma (csv).
        labels: the label names, in the order of the network's outputs; () where `resolve_labels`
            is to collect them from the training split.
        metrics: names among the metrics of the kind; the first is the main one.
        symmetric: whether training shows both orders of the two texts (ELECTRA's
            `double_unordered`); only for tasks with a text_b.
        label_range: regression: the lowest and the highest label; the network learns
            (label - low) / (high - low).
        tfds: the tensorflow-datasets name of the task, e.g. "glue/cola".
        version_2: span: whether questions may be unanswerable.
        lenient: whether texts may be empty and rows with a wrong number of fields are skipped (and
            counted in the log; never in test splits) rather than refused; for official files that
            have such rows.
        folders: folders in which the files may be: those below the data folder are tried before the
            data folder itself, absolute ones (where a declaration lies) after it.
    """

    name: str
    kind: str
    files: dict[str, str | tuple[str, ...]]
    format: str
    columns: dict[str, str | int]
    metrics: tuple[str, ...]
    train: str = "train"
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)
    labels: tuple[str, ...] = ()
    symmetric: bool = False
    label_range: tuple[float, float] = (0.0, 1.0)
    tfds: str | None = None
    version_2: bool = False
    header: bool = True
    per_split: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    lenient: bool = False
    folders: tuple[str, ...] = ()
    delimiter: str | None = None

    def __post_init__(self) -> None:
        formats = self.plugin.formats
        if self.format not in formats:
            raise InputError(
                f"`format` of a {self.kind} task should be one of {', '.join(formats)}. "
                f"Received: {self.format!r}"
            )
        _check_splits(self)
        _check_delimiter(self)
        for split in self.files:
            self.plugin.check_columns(self, split)
        self.plugin.check(self)
        _check_labels(self)

    @property
    def plugin(self) -> Kind:
        """The kind of the task: what it reads, learns, answers and measures.

        Raises:
            InputError: no kind of this name is registered.
        """
        return kinds.get(self.kind)

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits: training, development, test."""
        return (self.train, *self.dev, *self.test)

    def columns_of(self, split: str) -> dict[str, str | int]:
        """The columns of one split: `columns`, unless `per_split` has others."""
        return self.per_split.get(split, {}).get("columns", self.columns)

    def has_header(self, split: str) -> bool:
        """Whether one split's file begins with a line of column names."""
        return self.per_split.get(split, {}).get("header", self.header)

    def to_json(self) -> dict[str, Any]:
        """The task as a JSON object, from which `declaration.parse` makes an equal task."""
        values = _lists(dataclasses.asdict(self))
        if self.delimiter is None:  # runs are compared by this, also those from before the field
            del values["delimiter"]
        return values


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def _check_splits(task: Task) -> None:
    if task.name in ("", ".", "..") or not task.name.isprintable() or set(task.name) & set("/\\"):
        raise InputError(f"`name` should be usable as a folder's name. Received: {task.name!r}")
    if not task.metrics:
        raise InputError("`metrics` should name at least one score. Received: ()")
    if len(set(task.splits)) < len(task.splits):
        raise InputError(f"Each split should be named once. Received: {', '.join(task.splits)}")
    for split in task.splits:
        if split not in task.files:
            raise InputError(
                f"`files` should name the file of the split {split!r}. "
                f"Received: {', '.join(task.files) or 'no files'}"
            )
    for split, part in task.files.items() if task.format == "tfds" else ():
        if not task.tfds and "@" not in part:
            raise InputError(
                f"`tfds` should name the dataset, or the split {split!r} should be written "
                f"DATASET@SPLIT in `files`. Received: {part!r}"
            )
    if set(task.files) - set(task.splits) or set(task.per_split) - set(task.files):
        names = sorted({*task.files, *task.per_split} - set(task.splits))
        raise InputError(
            f"Each split should be listed under `train`, `dev` or `test`. "
            f"Received: {', '.join(names)}"
        )


def _check_delimiter(task: Task) -> None:
    if task.delimiter is None:
        return
    if task.format not in ("tsv", "csv"):
        raise InputError(
            f"`delimiter` should be given for tables, of format csv or tsv. Received: "
            f"{task.delimiter!r} and format {task.format!r}"
        )
    if len(task.delimiter) != 1 or task.delimiter in '"\r\n\0':
        raise InputError(
            f"`delimiter` should be one character that is neither a quotation mark nor a line "
            f"break. Received: {task.delimiter!r}"
        )


def _check_labels(task: Task) -> None:
    if len(set(task.labels)) < len(task.labels):
        raise InputError(f"`labels` should be distinct. Received: {', '.join(task.labels)}")
    low, high = task.label_range
    if not low < high:
        raise InputError(f"`label_range` should be [low, high]. Received: {[low, high]}")

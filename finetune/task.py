"""What a fine-tuning task is: its kind, its files and columns, its labels and its scores.

A built-in task is a row of the table in finetune/glue.py; a user's own task is a JSON file with
the fields of `Task` (finetune/declaration.py). Reading a split gives examples, which are text:
nothing here knows a vocabulary or a model.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Sequence
from typing import Any

from errors import InputError
from finetune.labels import check_declared

KINDS = ("classification", "regression", "tagging", "span")
FORMATS = {  # the file formats that can hold a kind of task
    "classification": ("tsv", "csv", "jsonl", "tfds"),
    "regression": ("tsv", "csv", "jsonl", "tfds"),
    "tagging": ("conll", "conllu", "jsonl", "tfds"),
    "span": ("squad", "tfds"),
}


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A text or a pair of texts with a label.

    Attributes:
        id: the row's identity; for GLUE's test files the index the server wants.
        text_a: the (first) text.
        text_b: the second text, or None where the task has single texts.
        label: classification: index into `Task.labels`; regression: a number within
            `Task.label_range`; None where the file has no labels.
    """

    id: str
    text_a: str
    text_b: str | None
    label: int | float | None


@dataclasses.dataclass(frozen=True)
class TaggedExample:
    """A sentence with one tag per word; `tags` are indices into `Task.labels`, None: unknown."""

    id: str
    words: tuple[str, ...]
    tags: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class QuestionExample:
    """A question whose answer is a span of its context.

    Attributes:
        id: the question's id.
        question: the question.
        context: the paragraph that holds the answer.
        answers: every gold answer text (a development set has several); empty where unanswerable.
        answer_start: character offset of `answers[0]` in `context`; None for an unlabelled or
            unanswerable question.
        is_impossible: whether the context holds no answer (SQuAD 2.0).
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    answer_start: int | None
    is_impossible: bool


Example = TextExample | TaggedExample | QuestionExample


@dataclasses.dataclass(frozen=True)
class Task:
    """The declaration of a task.

    Attributes:
        name: the task's name, also its folder among the results.
        kind: one of KINDS.
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
        metrics: keys of finetune.metrics.METRICS; the first is the main one.
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
        if self.kind not in KINDS:
            raise InputError(f"`kind` should be one of {', '.join(KINDS)}. Received: {self.kind!r}")
        if self.format not in FORMATS[self.kind]:
            raise InputError(
                f"`format` of a {self.kind} task should be one of "
                f"{', '.join(FORMATS[self.kind])}. Received: {self.format!r}"
            )
        _check_splits(self)
        _check_delimiter(self)
        for split in self.files:
            _check_columns(self, split)
        _check_symmetric(self)
        _check_labels(self)

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
        """The task as a JSON object, which `from_json` turns back into an equal task."""
        values = _lists(dataclasses.asdict(self))
        if self.delimiter is None:  # runs are compared by this, also those from before the field
            del values["delimiter"]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any], where: str = "task") -> Task:
        """The task that a JSON object declares; see finetune/declaration.py.

        Args:
            values: the object.
            where: the file it comes from, for error messages.

        Raises:
            InputError: an unknown or missing key, or a value of a wrong type or meaning.
        """
        from finetune import declaration

        return declaration.parse(values, where)


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


def _check_columns(task: Task, split: str) -> None:
    if task.kind == "span":
        return
    if task.kind == "tagging":
        needed, optional = ["words", "tags"], ["id"]
        if task.format == "conllu":
            needed = ["tags"]
    else:
        needed, optional = ["text_a", "label"], ["text_b", "id"]
    columns = task.columns_of(split)
    for role in columns:
        if role not in needed + optional:
            raise InputError(
                f"`columns` of a {task.kind} task may hold {', '.join(needed + optional)}. "
                f"Received: {role!r}"
            )
    result = needed[-1]  # what is predicted
    for role in ("text_a", "text_b", "words"):
        if role in columns and columns[role] == columns.get(result):
            raise InputError(
                f"`columns` should name different columns for `{role}` and `{result}` (split "
                f"{split!r}). Received: {columns[role]!r} for both"
            )
    hidden = {"label", "tags"} if split in task.test else set()
    for role in needed:
        if role not in columns and role not in hidden:
            raise InputError(
                f"`columns` should say which column holds `{role}` (split {split!r}). "
                f"Received: {columns}"
            )


def _check_symmetric(task: Task) -> None:
    columns = task.columns_of(task.train)
    is_pair = task.kind in ("classification", "regression") and "text_b" in columns
    if task.symmetric and not is_pair:
        raise InputError(
            f"`symmetric` should be true only for pairs of texts, `text_a` and `text_b`. Received: "
            f"a {task.kind} task with the columns {', '.join(columns) or 'none'}"
        )


def _check_labels(task: Task) -> None:
    if len(set(task.labels)) < len(task.labels):
        raise InputError(f"`labels` should be distinct. Received: {', '.join(task.labels)}")
    if task.kind == "classification" and len(task.labels) == 1:
        raise InputError(f"`labels` should be at least two. Received: {task.labels[0]!r}")
    low, high = task.label_range
    if not low < high:
        raise InputError(f"`label_range` should be [low, high]. Received: {[low, high]}")


def load_task(name_or_json_path: str) -> Task:
    """A built-in task by name (this project's or ELECTRA's spelling), or a user's by JSON file.

    Raises:
        InputError: no such built-in task (the nearest is suggested), or a declaration that is
            missing or wrong.
    """
    from finetune import declaration, glue

    name = name_or_json_path.strip()
    if name.endswith(".json") or os.path.isfile(name):
        task = declaration.read(name)
        check_declared(task, name)
        return task
    key = glue.ALIASES.get(name.lower(), name.lower())
    if key in glue.TASKS:
        return glue.TASKS[key]
    near = difflib.get_close_matches(key, [*glue.TASKS, *glue.ALIASES], n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise InputError(
        f"The task should be one of {', '.join(glue.TASKS)}, or the path of a JSON file that "
        f"declares a task{hint}. Received: {name_or_json_path!r}"
        f"{', a folder' if os.path.isdir(name) else ''}"
    )


def load_tasks(names_or_json_paths: Sequence[str]) -> list[Task]:
    """`load_task` of each.

    Raises:
        InputError: as of `load_task`; or two tasks have the same name, and so the same results.
    """
    tasks = [load_task(name) for name in names_or_json_paths]
    first: dict[str, tuple[Task, str]] = {}
    for task, said in zip(tasks, names_or_json_paths):
        other, before = first.setdefault(task.name, (task, said))
        if task != other:
            raise InputError(
                f"{said}: each task should have a `name` of its own, which is that of the file if "
                f"the declaration gives none. Received: {task.name!r}, as {before} has"
            )
    return tasks


def read_split(task: Task, data_dir: str, split: str) -> list[Example]:
    """Reads one split whole.

    Args:
        task: a task whose `labels` are known (see `resolve_labels`).
        data_dir: the folder of the task's files or of all tasks' folders; "tfds" or "tfds:FOLDER"
            for the dataset of the same name from tensorflow-datasets; "" where a declared task's
            files lie beside its declaration.
        split: one of `task.splits`.

    Raises:
        InputError: a file that is missing, empty or not as declared; names file and line.
    """
    from finetune import reading

    return reading.read_split(task, data_dir, split)


def split_path(task: Task, data_dir: str, split: str) -> str:
    """The path of a split's file, or "tfds:FOLDER@SPLIT" of a prepared dataset.

    Raises:
        InputError: there is no such file or more than one.
    """
    from finetune import reading

    return reading.split_path(task, data_dir, split)


def has_split(task: Task, data_dir: str, split: str) -> bool:
    """Whether the file (or the split of the dataset) of one of `task.splits` is there."""
    from finetune import reading

    return reading.has_split(task, data_dir, split)


def resolve_labels(task: Task, data_dir: str) -> Task:
    """The task with its labels, collected (sorted) from the training split if not declared."""
    from finetune import reading

    return reading.resolve_labels(task, data_dir)

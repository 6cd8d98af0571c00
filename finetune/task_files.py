"""Where the rows of a task are, in files or tables in memory, and its examples and labels."""

from __future__ import annotations

import collections
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import storage
from data.readers.tfds_text import open_dataset
from errors import InputError, located
from finetune.labels import LABELS_SHOWN, label_name, reject_header, shown
from finetune.readers import tables
from finetune.readers.tables import Row, Table
from finetune.readers.tfds_rows import read_dataset
from finetune.task import Columns, Task
from settings import did_you_mean

Data = str | Mapping[str, Table]  # a folder, or tables in memory by split

_DATASETS = "tfds"  # as --data_dir: tensorflow-datasets by name, "tfds:FOLDER" with their folder
# The names of the texts in tensorflow-datasets; labels and numbers are `label` and `idx` in all.
_TFDS_TEXTS = {
    "cola": ("sentence",),
    "sst": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "sts": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "rte": ("sentence1", "sentence2"),
    "wnli": ("sentence1", "sentence2"),
}


@dataclasses.dataclass(frozen=True)
class Source:
    """A split of a task where it lies.

    Attributes:
        task: the declaration, as it is laid out there.
        split: one of `task.splits`.
        path: the file, "tfds:FOLDER@SPLIT" of a prepared dataset, or the name of a table.
        folder: of tensorflow-datasets; None as the library has it.
        table: the rows, where they are not in a file.
        unseen: labels that the task does not have, with the places where `label_index` met them.
    """

    task: Task
    split: str
    path: str
    folder: str | None = None
    table: Table | None = None
    unseen: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Columns]:
        """Role -> column, or columns."""
        return self.task.columns_of(self.split)

    @property
    def is_test(self) -> bool:
        """Whether labels may be hidden."""
        return self.split in self.task.test

    def rows(self, columns: dict[str, Columns] | None = None) -> Iterator[Row]:
        """The rows by the reader of the format: (file and line, role -> value).

        Args:
            columns: by default, those of the declaration.

        Raises:
            InputError: names file and line.
        """
        columns = self.columns if columns is None else columns
        lists = {role: list(item) for role, item in columns.items() if isinstance(item, tuple)}
        rows = self._rows(tables.spread({**columns, **lists}))
        return ((where, tables.gathered(row)) for where, row in rows) if lists else rows

    def _rows(self, columns: dict[str, Any]) -> Iterator[Row]:
        task = self.task
        target = task.plugin.target
        of_target = [role for role in columns if role.partition("[")[0] == target]
        optional = of_target if self.is_test else []
        if self.table is not None:
            return tables.read_frame(self.table, columns, optional=optional)
        if task.format == _DATASETS:
            builder, part = _open(task, self.folder, self.split)
            return read_dataset(builder, part, columns, task.labels)
        if task.format == "jsonl":
            return tables.read_jsonl(self.path, columns, optional=optional)
        if task.format not in ("tsv", "csv"):
            return task.plugin.rows(self)
        return tables.read_table(
            self.path,
            task.format == "csv",
            columns,
            header=task.has_header(self.split),
            optional=optional,
            lenient=task.lenient and not self.is_test,
            delimiter=task.delimiter,
        )

    def identified_rows(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yields (id, file and line, role -> value); without an id it is the number, from 0.

        Raises:
            InputError: as of `rows`; two rows have one id, or one repeats the columns' names.
        """
        seen: dict[str, str] = {}
        for index, (where, row) in enumerate(self.rows()):
            reject_header(self.columns, where, row)
            identity = str(row.get("id", index))
            if identity in seen:
                raise InputError(
                    f"{where}: each row should have an id of its own, and {seen[identity]} has the "
                    f"same. Received: {identity!r}"
                )
            seen[identity] = where
            yield identity, where, row


def source_of(task: Task, data_dir: Data, split: str) -> Source:
    """Finds one of `task.splits`.

    Args:
        task: the declaration.
        data_dir: the folder of the task's files or of all tasks' folders; "tfds" or "tfds:FOLDER"
            for the dataset of the same name from tensorflow-datasets; "" where a declared task's
            files lie beside its declaration. Or tables by split.
        split: its name.

    Raises:
        InputError: there is no such file or more than one.
    """
    if not isinstance(data_dir, str):
        return Source(task, split, data_dir[split].name, table=data_dir[split])
    task, folder = _from_datasets(task, data_dir)
    if task.format == _DATASETS:
        builder, part = _open(task, folder, split)
        return Source(task, split, f"{_DATASETS}:{builder.data_path}@{part}", folder)
    found = _find(task, data_dir, split)
    if found:
        return Source(task, split, found)
    places = " or ".join(dict.fromkeys(_places(task, data_dir)))
    raise InputError(
        f"The {split} split of task {task.name} should be in {places or '--data_dir'}. Received:"
        f" no {task.files[split]!r} there"
    )


def has_split(task: Task, data_dir: Data, split: str) -> bool:
    """Returns True if the file, table or split of the dataset of one of `task.splits` is there."""
    if not isinstance(data_dir, str):
        return split in data_dir
    task, folder = _from_datasets(task, data_dir)
    if task.format == _DATASETS:
        builder, part = _open(task, folder, split)
        return part.partition("[")[0] in builder.info.splits
    return _find(task, data_dir, split) is not None


def read_split(task: Task, data_dir: Data, split: str) -> list:
    """Reads one split whole, of a task whose `labels` are known (see `resolve_labels`).

    Raises:
        InputError: a file that is missing, empty or not as declared, or labels that the task does
            not have; names file and line.
    """
    source = source_of(task, data_dir, split)
    examples = task.plugin.read(source)
    if source.unseen:
        first = next(iter(source.unseen.values()))[0]
        counts = {name: len(places) for name, places in source.unseen.items()}
        raise InputError(
            f"{first}: labels should be among {', '.join(task.labels[:LABELS_SHOWN])}, those of the"
            f' training split or of `labels`; "unseen_labels": true counts others as wrong.'
            f" Received: {shown(counts)}.{did_you_mean(next(iter(counts)), task.labels)}"
        )
    if not examples:
        raise InputError(f"{source.path}: the {split} split should hold examples")
    return examples


def _find(task: Task, data_dir: str, split: str) -> str | None:
    """The file of a split, or None."""
    names = task.files[split]
    is_folder = task.format in task.plugin.folder_formats
    is_split = storage.isdir if is_folder else storage.isfile
    for folder in _places(task, data_dir):
        for name in (names,) if isinstance(names, str) else names:
            # The last part alone, too: diagnostic/diagnostic.tsv is often moved up.
            # Not of folders: train/middle and dev/middle would be the same.
            for candidate in dict.fromkeys((name, name if is_folder else os.path.basename(name))):
                path = os.path.join(folder, candidate)
                found = task.plugin.located(task.format, path) or _match(path, is_split)
                if found:
                    return found
    return None


def _places(task: Task, data_dir: str) -> list[str]:
    """The folders in which a task's files may be, in the order in which they are tried."""
    absolute = [
        folder for folder in task.folders if storage.is_url(folder) or os.path.isabs(folder)
    ]
    if absolute and data_dir and not storage.isdir(data_dir):  # or it would be passed over
        what = "a file" if storage.exists(data_dir) else "no such folder"
        raise InputError(
            f"{data_dir}: --data_dir should be the folder of the files of task {task.name}. "
            f"Received: {what}"
        )
    if not data_dir:
        return absolute
    below = [os.path.join(data_dir, f) for f in task.folders if f not in absolute]
    return [*below, data_dir, *absolute]


def _match(path: str, is_split: Callable[[str], bool]) -> str | None:
    """The file, or folder, of this path, which may be a pattern in its last part."""
    if is_split(path):
        return path
    folder, name = os.path.split(path)
    found = list(filter(is_split, storage.matching(folder, name)))
    if len(found) > 1:
        names = ", ".join(map(os.path.basename, found))
        raise InputError(f"{path}: should match one file. Received: {names}")
    return found[0] if found else None


def _from_datasets(task: Task, data_dir: str) -> tuple[Task, str | None]:
    """The task as it is laid out in tensorflow-datasets if that is asked for, and its folder."""
    name, _, folder = data_dir.partition(":")
    if name == _DATASETS:
        return _as_in_tfds(task), folder or None
    return task, data_dir or None


def _open(task: Task, folder: str | None, split: str) -> tuple[Any, str]:
    """The builder and the name within it of a split of a task whose format is "tfds"."""
    name, _, part = task.files[split].rpartition("@")
    return open_dataset(name or task.tfds, folder), part


def _as_in_tfds(task: Task) -> Task:
    """The task as tensorflow-datasets lays it out: other names of splits and columns."""
    if task.format == "tfds":
        return task
    columns: dict[str, str | int] = {}
    if task.name in _TFDS_TEXTS:
        columns = dict(zip(("text_a", "text_b"), _TFDS_TEXTS[task.name]))
        columns |= {"label": "label", "id": "idx"}
    if task.tfds is None or not (columns or not task.plugin.needed_columns(_DATASETS)):
        raise InputError(
            f"Task {task.name} should be one that tensorflow-datasets is known to have "
            f"({', '.join([*_TFDS_TEXTS, 'squad', 'squadv1'])}) or a declaration of format "
            f'"tfds". Received: --data_dir tfds'
        )
    files = {split: split.replace("dev", "validation") for split in task.splits}
    if "diagnostic" in files:
        files["diagnostic"] = "glue/ax@test"
    return dataclasses.replace(task, format="tfds", files=files, columns=columns, per_split={})


def resolve_labels(task: Task, data_dir: Data) -> Task:
    """The task with its labels, collected (sorted) from the training split if not declared.

    With `unseen_labels`, those that only development splits have come last.

    Raises:
        InputError: a file that is missing, or rows without a label; names file and line.
    """
    if not task.plugin.has_labels or (task.labels and not task.unseen_labels):
        return task
    named = task.labels or task.plugin.label_names(task)
    source = source_of(task, data_dir, task.train)
    found = dict.fromkeys(named, 0) or _collected(source)
    if not named:
        # "10" comes after "9".
        ordered = sorted(found, key=lambda x: (0, int(x), x) if x.isdecimal() else (1, 0, x))
        found = {name: found[name] for name in ordered}
        print(f"{task.name} labels, collected from {task.train}: {shown(found)}", file=sys.stderr)
    unseen: dict[str, None] = {}
    for split in task.dev if task.unseen_labels else ():
        unseen |= dict.fromkeys(sorted({*_collected(source_of(task, data_dir, split))} - {*found}))
    with located(source.path):
        return dataclasses.replace(task, labels=(*found, *unseen), untrained=tuple(unseen))


def _collected(source: Source) -> collections.Counter[str]:
    """How often each label occurs."""
    found: collections.Counter[str] = collections.Counter()
    for where, row in source.rows():
        values = source.task.plugin.label_values(row)
        # What is no list is rejected when the row is read.
        for number, value in enumerate(values if isinstance(values, list) else ()):
            place = row["tag_places"][number] if "tag_places" in row else where
            found[label_name(place, value)] += 1
    return found

"""Finds the rows of a task, in files or tables in memory, and reads examples and labels."""

from __future__ import annotations

import collections
import dataclasses
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from convbert.common import storage
from convbert.common.errors import InputError, located
from convbert.finetune.declaration import Task
from convbert.finetune.kinds.base import label_name, shown
from convbert.finetune.readers import conll, tables, treebank
from convbert.finetune.readers.datasets import open_dataset, read_dataset
from convbert.finetune.readers.questions import read_race, read_squad
from convbert.finetune.readers.tables import Row, Table

Data = str | Mapping[str, Table]  # a folder, or tables in memory by split

_DATASETS = "tfds"  # value of --data_dir for tensorflow-datasets, or "tfds:FOLDER"


@dataclasses.dataclass(frozen=True)
class SplitSource:
    """A split of a task where it lies."""

    task: Task
    split: str  # one of `task.splits`
    path: str  # the file, "tfds:FOLDER@SPLIT" of a prepared dataset, or the name of a table
    dataset: tuple[Any, str] | None = None  # builder of tensorflow-datasets and name of the split
    table: Table | None = None  # the rows, if not in a file

    @property
    def is_test(self) -> bool:
        """Returns True for a test split, whose labels may be hidden."""
        return self.split in self.task.test

    def rows(self) -> Iterator[Row]:
        """Yields (place, role -> value) from the format's reader; errors name the place."""
        if self.dataset is not None:
            return read_dataset(*self.dataset, self.task)
        target = self.task.plugin.target
        optional = (target,) if self.is_test and target else ()
        columns = self.task.columns_of(self.split)
        if self.table is not None:
            return tables.read_frame(self.table, columns, optional=optional)
        return READERS[self.task.format](self, columns, optional)


def _table_rows(source: SplitSource, columns: dict[str, Any], optional: tuple) -> Iterator[Row]:
    task = source.task
    return tables.read_table(
        source.path,
        task.format == "csv",
        columns,
        header=task.per_split.get(source.split, {}).get("header", task.header),
        optional=optional,
        lenient=task.lenient and not source.is_test,
    )


# Format -> the rows of (source, role -> column, roles that may be missing). A plug-in adds its own.
READERS: dict[str, Callable[[SplitSource, dict[str, Any], tuple], Iterator[Row]]] = {
    "tsv": _table_rows,
    "csv": _table_rows,
    "jsonl": lambda source, columns, optional: tables.read_jsonl(
        source.path, columns, optional=optional
    ),
    "conll": lambda source, columns, _: conll.read_conll(
        source.path, columns, tagged=not source.is_test
    ),
    "conllu": lambda source, columns, _: conll.read_conllu(
        source.path, columns.get("tags", "upos")
    ),
    "treebank": lambda source, *_: treebank.read_treebank(source.path),
    "race": lambda source, *_: read_race(source.path),
    "squad": lambda source, *_: read_squad(source.path),
}


def source_of(task: Task, data_dir: Data, split: str) -> SplitSource:
    """Finds one of `task.splits`; raises InputError if there is no such file, or several.

    `data_dir` is the folder of the task's files or of all tasks' folders, "" for files next to the
    declaration, "tfds" or "tfds:FOLDER" for tensorflow-datasets, or tables by split.
    """
    found = find_source(task, data_dir, split)
    if found is None:
        places = " or ".join(dict.fromkeys(_places(task, str(data_dir))))
        raise InputError(
            f"The {split} split of task {task.name} should be in {places or '--data_dir'}."
            f" Received: no {task.files[split]!r} there"
        )
    return found


def find_source(task: Task, data_dir: Data, split: str) -> SplitSource | None:
    """Returns the file, table or dataset split of one of `task.splits`, or None."""
    if not isinstance(data_dir, str):
        table = data_dir.get(split)
        return table and SplitSource(task, split, table.name, table=table)
    name, _, folder = data_dir.partition(":")
    if name == _DATASETS:
        builder, part = open_dataset(task, split, folder or None)
        path = f"{_DATASETS}:{builder.data_path}@{part}"
        there = part in builder.info.splits
        return SplitSource(task, split, path, dataset=(builder, part)) if there else None
    found = _find(task, data_dir, split)
    return None if found is None else SplitSource(task, split, found)


def read_split(task: Task, data_dir: Data, split: str) -> list:
    """Reads the examples of a split of a task with known `labels` (see `resolve_labels`).

    Ids default to row numbers, from 0.
    """
    source, examples = source_of(task, data_dir, split), []
    seen: dict[str, Any] = {}
    for index, (where, row) in enumerate(source.rows()):
        said = row.get("id")
        identity = str(index if said is None else said)
        with located(where):
            if identity in seen:
                raise InputError(f"the `id` {identity!r} is also that of {seen[identity]}")
            examples.append(task.plugin.example(source, identity, row))
        seen[identity] = where
    if not examples:
        raise InputError(f"{source.path}: the {split} split should hold examples")
    return examples


def _find(task: Task, data_dir: str, split: str) -> str | None:
    """Returns the path of a split, or None."""
    for place in _places(task, data_dir):
        found = _found(place, task, split)
        if len(found) > 1:
            names = ", ".join(map(os.path.basename, found))
            raise InputError(f"{place}: {task.files[split]} should be one file. Received: {names}")
        if found:
            return found[0]
    return None


def _found(place: str, task: Task, split: str) -> list[str]:
    """Returns the paths of a split in a folder: none, one, or all that a pattern matches."""
    names = task.files[split]
    is_split = storage.isdir if task.format == "race" else storage.isfile
    for name in (names,) if isinstance(names, str) else names:
        path = os.path.join(place, name)
        if is_split(path) or treebank.has_sections(path):
            return [path]
        if found := list(filter(is_split, storage.matching(*os.path.split(path)))):
            return found
    return []


def _places(task: Task, data_dir: str) -> list[str]:
    """Returns the folders to search: those beside the declaration only if `data_dir` holds none."""
    absolute = [f for f in task.folders if storage.is_url(f) or os.path.isabs(f)]
    if not data_dir:
        return absolute
    if absolute and not storage.isdir(data_dir):  # otherwise it would be ignored
        raise InputError(
            f"{data_dir}: --data_dir should be the folder of the files of task {task.name}. "
            f"Received: {'a file' if storage.exists(data_dir) else 'no such folder'}"
        )
    below = [os.path.join(data_dir, f) for f in task.folders if f not in absolute] + [data_dir]
    held = (
        path.startswith(os.path.join(place, ""))  # not an absolute one of the declaration
        for place in below
        for split in task.splits
        for path in _found(place, task, split)
    )
    return below if not absolute or any(held) else [*below, *absolute]


def resolve_labels(task: Task, data_dir: Data) -> Task:
    """Returns the task with labels, collected and sorted from training if not declared."""
    if not task.plugin.has_labels or task.labels:
        return task
    source = source_of(task, data_dir, task.train)
    counts: collections.Counter[str] = collections.Counter()
    for where, row in source.rows():
        values = task.plugin.label_values(row)
        with located(where):
            # Reading the row rejects values that are not lists.
            counts.update(map(label_name, values if isinstance(values, list) else ()))
    # "10" comes after "9", and "1" after "-1".
    number = re.compile(r"[+-]?\d+").fullmatch
    ordered = sorted(counts, key=lambda x: (0, int(x), x) if number(x) else (1, 0, x))
    found = shown({name: counts[name] for name in ordered})
    print(f"{task.name} labels, collected from {task.train}: {found}", file=sys.stderr)
    with located(source.path):
        return dataclasses.replace(task, labels=tuple(ordered))

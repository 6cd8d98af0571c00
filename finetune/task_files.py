"""Where the rows of a task are, in files or tables in memory, and its examples and labels."""

from __future__ import annotations

import collections
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from common import storage
from common.errors import InputError, located
from common.settings import did_you_mean, present
from data.tfds_datasets import in_order, open_dataset, split_info
from finetune.declaration import TFDS_TEXTS, Columns, Task
from finetune.labels import LABELS_SHOWN, label_name, reject_header, shown
from finetune.readers import conll, tables, treebank
from finetune.readers.lines import Place
from finetune.readers.questions import read_race, read_squad
from finetune.readers.tables import Row, Table, find_columns, names_in, row_of

Data = str | Mapping[str, Table]  # a folder, or tables in memory by split

_DATASETS = "tfds"  # as --data_dir: tensorflow-datasets by name, "tfds:FOLDER" with their folder


@dataclasses.dataclass(frozen=True)
class Source:
    """A split of a task where it lies.

    Attributes:
        task: the declaration, as it is laid out there.
        split: one of `task.splits`.
        path: the file, "tfds:FOLDER@SPLIT" of a prepared dataset, or the name of a table.
        dataset: the builder of tensorflow-datasets and the name of the split there, if it is one.
        table: the rows, where they are not in a file.
        unseen: labels that the task does not have, with the places where `label_index` met them.
    """

    task: Task
    split: str
    path: str
    dataset: tuple[Any, str] | None = None
    table: Table | None = None
    unseen: dict[str, list] = dataclasses.field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Columns]:
        """Role -> column, or columns."""
        return self.task.columns_of(self.split)

    @property
    def is_test(self) -> bool:
        """True for a test split, whose labels may be hidden."""
        return self.split in self.task.test

    def rows(self) -> Iterator[Row]:
        """Yields (place, role -> value) by the reader of the format; errors name the place."""
        columns = {k: list(v) if isinstance(v, tuple) else v for k, v in self.columns.items()}
        target = self.task.plugin.target
        optional = (target,) if self.is_test and target else ()
        if self.table is not None:
            return tables.read_frame(self.table, columns, optional=optional)
        if self.dataset is not None:
            return read_dataset(*self.dataset, columns, self.task.labels)
        return READERS[self.task.format](self, columns, optional)


def _table_rows(source: Source, columns: dict[str, Any], optional: tuple) -> Iterator[Row]:
    task = source.task
    skipped: list[InputError] = []
    yield from tables.read_table(
        source.path,
        task.format == "csv",
        columns,
        header=task.has_header(source.split),
        optional=optional,
        reject=skipped.append if task.lenient and not source.is_test else tables.raised,
        delimiter=task.delimiter,
    )
    if skipped:
        logging.warning("%d rows are left out, the first: %s", len(skipped), skipped[0])


# Format -> the rows of (source, role -> column, roles that may be missing). A plug-in adds its own.
READERS: dict[str, Callable[[Source, dict[str, Any], tuple], Iterator[Row]]] = {
    "tsv": _table_rows,
    "csv": _table_rows,
    "jsonl": lambda source, columns, optional: tables.read_jsonl(
        source.path, columns, optional=optional
    ),
    "conll": lambda source, columns, _: conll.read_conll(
        source.path, columns, tagged=not source.is_test
    ),
    "conllu": lambda source, columns, _: conll.read_conllu(source.path, columns["tags"]),
    "treebank": lambda source, *_: treebank.read_treebank(source.path),
    "race": lambda source, *_: read_race(source.path),
    "squad": lambda source, *_: read_squad(source.path),
}
_FOLDERS = ("race",)  # formats whose splits are folders of files


def source_of(task: Task, data_dir: Data, split: str) -> Source:
    """Finds one of `task.splits`; raises InputError where there is no such file, or several.

    `data_dir` is the folder of the task's files or of all tasks' folders; "tfds" or "tfds:FOLDER"
    for the dataset of the same name from tensorflow-datasets; "" where a declared task's files lie
    beside its declaration. Or tables by split.
    """
    found = _source(task, data_dir, split)
    if found is None:
        places = " or ".join(dict.fromkeys(_places(task, str(data_dir))))
        raise InputError(
            f"The {split} split of task {task.name} should be in {places or '--data_dir'}."
            f" Received: no {task.files[split]!r} there"
        )
    return found


def has_split(task: Task, data_dir: Data, split: str) -> bool:
    """Returns True if the file, table or split of the dataset of one of `task.splits` is there."""
    found = _source(task, data_dir, split)
    if found is None or found.dataset is None:
        return found is not None
    builder, part = found.dataset
    return part.partition("[")[0] in builder.info.splits


def _source(task: Task, data_dir: Data, split: str) -> Source | None:
    if not isinstance(data_dir, str):
        table = data_dir.get(split)
        return table and Source(task, split, table.name, table=table)
    name, _, folder = data_dir.partition(":")
    if name == _DATASETS:
        task, data_dir = _as_in_tfds(task), folder
    if task.format == _DATASETS:
        name, _, part = str(task.files[split]).rpartition("@")
        builder = open_dataset(name or present(task.tfds), data_dir or None)
        path = f"{_DATASETS}:{builder.data_path}@{part}"
        return Source(task, split, path, dataset=(builder, part))
    found = _find(task, data_dir, split)
    return None if found is None else Source(task, split, found)


def read_split(task: Task, data_dir: Data, split: str) -> list:
    """The examples of a split of a task whose `labels` are known (see `resolve_labels`).

    The id of a row without one is its number, from 0.
    """
    source, examples = source_of(task, data_dir, split), []
    seen: dict[str, Any] = {}
    for index, (where, row) in enumerate(source.rows()):
        identity = str(row.get("id", index))
        with located(where):
            reject_header(source.columns, row)
            if identity in seen:
                raise InputError(f"the `id` {identity!r} is also that of {seen[identity]}")
            examples.append(task.plugin.example(source, identity, where, row))
        seen[identity] = where
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
    """The file, or folder, of a split, whose name may be a pattern in its last part; or None."""
    names, is_folder = task.files[split], task.format in _FOLDERS
    is_split = storage.isdir if is_folder else storage.isfile
    for place in _places(task, data_dir):
        for name in (names,) if isinstance(names, str) else names:
            # The last part alone, too: diagnostic/diagnostic.tsv is often moved up.
            # Not of folders: train/middle and dev/middle would be the same.
            for candidate in dict.fromkeys((name, name if is_folder else os.path.basename(name))):
                path = os.path.join(place, candidate)
                if is_split(path) or treebank.has_sections(path):
                    return path
                found = list(filter(is_split, storage.matching(*os.path.split(path))))
                if len(found) > 1:
                    names = ", ".join(map(os.path.basename, found))
                    raise InputError(f"{path}: should match one file. Received: {names}")
                if found:
                    return found[0]
    return None


def _places(task: Task, data_dir: str) -> list[str]:
    """The folders in which a task's files may be, in the order in which they are tried."""
    absolute = [f for f in task.folders if storage.is_url(f) or os.path.isabs(f)]
    if not data_dir:
        return absolute
    if absolute and not storage.isdir(data_dir):  # or it would be passed over
        raise InputError(
            f"{data_dir}: --data_dir should be the folder of the files of task {task.name}. "
            f"Received: {'a file' if storage.exists(data_dir) else 'no such folder'}"
        )
    below = [os.path.join(data_dir, f) for f in task.folders if f not in absolute]
    return [*below, data_dir, *absolute]


def _as_in_tfds(task: Task) -> Task:
    """The task as tensorflow-datasets lays it out: other names of splits and columns."""
    if task.format == "tfds":
        return task
    columns: dict[str, Columns] = {}
    if (task.tfds or "").startswith("glue/"):
        roles = [role for role in task.columns if role != "label"]
        texts = TFDS_TEXTS.get(task.name) or [task.columns[role] for role in roles]
        columns = {**dict(zip(roles, texts)), "label": "label", "id": "idx"}
    if task.tfds is None or (task.plugin.needed and not columns):
        raise InputError(
            f"Task {task.name} should be one of GLUE or SQuAD, or a declaration of format "
            f'"tfds". Received: --data_dir tfds'
        )
    files: dict[str, Any] = {split: split.replace("dev", "validation") for split in task.splits}
    if "diagnostic" in files:
        files["diagnostic"] = "glue/ax@test"
    return dataclasses.replace(task, format="tfds", files=files, columns=columns, per_split={})


def resolve_labels(task: Task, data_dir: Data) -> Task:
    """The task with its labels, collected (sorted) from the training split if not declared.

    With `unseen_labels`, those that only development splits have come last.
    """
    if not task.plugin.has_labels or (task.labels and not task.unseen_labels):
        return task
    source = source_of(task, data_dir, task.train)
    found = dict.fromkeys(task.named_labels, 0) or _collected(source)
    if not task.named_labels:
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
        with located(where):
            # What is no list is rejected when the row is read.
            found.update(map(label_name, values if isinstance(values, list) else ()))
    return found


def read_dataset(
    builder: Any, split: str, columns: Mapping[str, Any], labels: Sequence[str]
) -> Iterator[Row]:
    """Yields the rows of a split, or a slice of it ("train[:10%]"), in the order of its files.

    A class label comes as its name, or, where `labels` are other words (GLUE's files say "1"
    where the dataset says "acceptable"), as its number in text; as None where it is hidden (-1).
    Without columns, each feature is a role.
    """
    features, name = builder.info.features, builder.info.full_name
    keys = find_columns(f"Dataset {name}", columns or {n: n for n in features}, features)
    split_info(builder, split)
    names = names_in(keys.values())
    for index, example in enumerate(in_order(builder, split)):
        record = {name: _tfds_value(features[name], example[name], labels) for name in names}
        yield Place(f"{name}@{split}", index, "example"), row_of(record, keys)


def _tfds_value(feature: Any, value: Any, labels: Sequence[str]) -> Any:
    """A feature's value as Python's str, int, float, bool, list or dict."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.Sequence):
        inner = feature.feature
        if isinstance(value, dict):  # a sequence of dicts comes as a dict of sequences
            columns = (
                [_tfds_value(inner[key], x, labels) for x in own] for key, own in value.items()
            )
            return [dict(zip(value, items)) for items in zip(*columns)]
        return [_tfds_value(inner, item, labels) for item in value]
    if isinstance(feature, tfds.features.ClassLabel):
        name = None if value < 0 else feature.int2str(int(value))
        return name if name is None or not labels or name in labels else str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value.item() if hasattr(value, "item") else value

"""From a task's files to examples: which file a split is, its rows, their texts and labels."""

from __future__ import annotations

import collections
import dataclasses
import difflib
import glob
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

from errors import InputError
from finetune.labels import refuse_header
from finetune.readers.tables import Row
from finetune.task import Example, QuestionExample, TaggedExample, Task, TextExample

_DATASETS = "tfds"  # as --data_dir: tensorflow-datasets by name, "tfds:FOLDER" with their folder
_LABELS_SHOWN = 40  # of those that are collected


def split_path(task: Task, data_dir: str, split: str) -> str:
    """See finetune.task.split_path."""
    _check_split(task, split)
    task, folder = _from_datasets(task, data_dir)
    if task.format == "tfds":
        builder, part = _open(task, folder, split)
        return f"{_DATASETS}:{builder.data_path}@{part}"
    found = _find(task, data_dir, split)
    if found:
        return found
    names = task.files[split]
    names = (names,) if isinstance(names, str) else names
    places = _places(task, data_dir)
    raise InputError(
        f"{' or '.join(names)}: the {split} split of task {task.name} should be in "
        f"{' or '.join(dict.fromkeys(places))}. Received: {_listing(places, names)}"
    )


def has_split(task: Task, data_dir: str, split: str) -> bool:
    """See finetune.task.has_split."""
    _check_split(task, split)
    task, folder = _from_datasets(task, data_dir)
    if task.format == "tfds":
        builder, part = _open(task, folder, split)
        return part.partition("[")[0] in builder.info.splits
    return _find(task, data_dir, split) is not None


def check_files(task: Task, data_dir: str, *, train: bool = True, test: bool = True) -> None:
    """Looks for a task's files and at the first row of each table, before anything slow begins.

    Args:
        task: the declaration.
        data_dir: see `finetune.task.read_split`.
        train: whether the training split is wanted.
        test: whether test splits are, where they are there.

    Raises:
        InputError: a file is missing, or its columns are not those of the declaration.
    """
    from finetune import glue

    laid_out, _ = _from_datasets(task, data_dir)
    if laid_out.format == "tfds":  # which only TensorFlow reads
        return
    needed = [*([task.train] if train else []), task.dev[0]]
    for split in [*needed, *task.dev[1:], *(task.test if test else ())]:
        if split not in needed and task.name in glue.TASKS and not has_split(task, data_dir, split):
            continue
        place = split_path(task, data_dir, split)
        if task.kind != "span":
            next(_rows(task, data_dir, split, place), None)


def _find(task: Task, data_dir: str, split: str) -> str | None:
    """The file of a split, or None."""
    names = task.files[split]
    for folder in _places(task, data_dir):
        for name in (names,) if isinstance(names, str) else names:
            # The last part alone, too: diagnostic/diagnostic.tsv is often moved up.
            for candidate in dict.fromkeys((name, os.path.basename(name))):
                found = _match(os.path.join(folder, candidate))
                if found:
                    return found
    return None


def _places(task: Task, data_dir: str) -> list[str]:
    """The folders in which a task's files may be, in the order in which they are tried."""
    absolute = [folder for folder in task.folders if os.path.isabs(folder)]
    if absolute and data_dir and not os.path.isdir(data_dir):  # or it would be passed over
        what = "a file" if os.path.exists(data_dir) else "no such folder"
        raise InputError(
            f"{data_dir}: --data_dir should be the folder of the files of task {task.name}. "
            f"Received: {what}"
        )
    if data_dir:
        below = [os.path.join(data_dir, f) for f in task.folders if f not in absolute]
        return [*below, data_dir, *absolute]
    if not absolute:
        raise InputError(
            f"--data_dir is missing: it should be the folder of the files of task {task.name}, or"
            " tfds[:FOLDER] to download them"
        )
    return absolute


def _match(path: str) -> str | None:
    """The file of this path, which may be a pattern in its last part."""
    if os.path.isfile(path):
        return path
    folder, name = os.path.split(path)
    found = sorted(filter(os.path.isfile, glob.glob(os.path.join(glob.escape(folder), name))))
    if len(found) > 1:
        names = ", ".join(map(os.path.basename, found))
        raise InputError(f"{path}: should match one file. Received: {names}")
    return found[0] if found else None


def _listing(folders: list[str], names: tuple[str, ...]) -> str:
    """What stands in the first of `folders` that exists, for an error message."""
    for path in (os.path.join(folder, name) for folder in folders for name in names):
        if os.path.isdir(path):
            return f"{path}, which is a folder"
    for folder in filter(os.path.isdir, folders):
        names = sorted(os.listdir(folder))
        names = ", ".join([*names[:8], *(["..."] if len(names) > 8 else [])])
        return f"{folder} with {names or 'no files'}"
    return "no such folder"


def _check_split(task: Task, split: str) -> None:
    if split not in task.splits:
        near = difflib.get_close_matches(split, task.splits, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise InputError(
            f"Task {task.name} has the splits {', '.join(task.splits)}{hint}. Received: {split!r}"
        )


def _from_datasets(task: Task, data_dir: str) -> tuple[Task, str | None]:
    """The task as it is laid out in tensorflow-datasets if that is asked for, and its folder."""
    from finetune import glue

    name, _, folder = data_dir.partition(":")
    if name == _DATASETS:
        return glue.from_tfds(task), folder or None
    return task, data_dir or None


def _open(task: Task, folder: str | None, split: str) -> tuple[Any, str]:
    """The builder and the name within it of a split of a task whose format is "tfds"."""
    from data.readers.tfds_text import open_dataset

    name, _, part = task.files[split].rpartition("@")
    return open_dataset(name or task.tfds, folder), part


def read_split(task: Task, data_dir: str, split: str) -> list[Example]:
    """See finetune.task.read_split."""
    if task.kind in ("classification", "tagging") and not task.labels:
        raise InputError(
            f"Task {task.name} should know its labels before examples are read: declare `labels` "
            f"or collect them with resolve_labels. Received: none"
        )
    place = split_path(task, data_dir, split)
    if task.kind == "span":
        examples = _questions(task, data_dir, split, place)
    else:
        make = _tagged_example if task.kind == "tagging" else _text_example
        rows = _with_ids(_rows(task, data_dir, split, place))
        examples = [make(task, split, identity, where, row) for identity, where, row in rows]
    if not examples:
        raise _no_examples(task, split, place)
    return examples


def _no_examples(task: Task, split: str, place: str) -> InputError:
    reason = ""
    if os.path.isfile(place):
        with open(place, "rb") as file:
            beginning = file.read(4096).removeprefix(b"\xef\xbb\xbf").strip()
        if not beginning:
            reason = " (the file is empty)"
        elif task.format in ("tsv", "csv") and task.has_header(split) and not task.lenient:
            reason = " (nothing follows the line of column names)"
    return InputError(f"{place}: the {split} split should hold examples. Received: none{reason}")


def _with_ids(rows: Iterator[Row]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields (id, where, row); the id of a row without one is its number, from 0."""
    seen: dict[str, str] = {}
    for index, (where, row) in enumerate(rows):
        identity = str(row.get("id", index))
        if identity in seen:
            raise InputError(
                f"{where}: each row should have an id of its own, and {seen[identity]} has the "
                f"same. Received: {identity!r}"
            )
        seen[identity] = where
        yield identity, where, row


def _rows(task: Task, data_dir: str, split: str, path: str) -> Iterator[Row]:
    """The rows of a split, by the reader of the task's format."""
    from finetune.readers import conll, tables

    task, folder = _from_datasets(task, data_dir)
    columns = task.columns_of(split)
    hidden = ("label", "tags") if split in task.test else ()
    if task.format == "tfds":
        from finetune.readers import tfds_rows  # TensorFlow

        builder, part = _open(task, folder, split)
        return tfds_rows.read_dataset(builder, part, columns, task.labels)
    if task.format == "conll":
        return conll.read_conll(path, columns, tagged=not hidden)
    if task.format == "conllu":
        return conll.read_conllu(path, columns["tags"])
    if task.format == "jsonl":
        return tables.read_jsonl(path, columns, optional=hidden)
    return tables.read_table(
        path,
        task.format == "csv",
        columns,
        header=task.has_header(split),
        optional=hidden,
        lenient=task.lenient and split not in task.test,
        delimiter=task.delimiter,
    )


def _text_example(task: Task, split: str, identity: str, where: str, row: dict) -> TextExample:
    refuse_header(task.columns_of(split), where, row)
    texts = {role: row[role] for role in ("text_a", "text_b") if role in row}
    for role, text in texts.items():
        if not isinstance(text, str) or not (text.strip() or task.lenient):
            wanted = "a text that is not empty" if isinstance(text, str) else "a text"
            raise InputError(f"{where}: `{role}` should be {wanted}. Received: {text!r:.60}")
    label = row.get("label")
    if split in task.test and (label is None or label == ""):
        label = None
    elif task.kind == "regression":
        label = _number(task, split, where, label)
    else:
        label = _label_index(task, split, where, label)
    return TextExample(identity, texts["text_a"], texts.get("text_b"), label)


def _number(task: Task, split: str, where: str, label: Any) -> float | None:
    low, high = task.label_range
    try:
        value = math.nan if isinstance(label, bool) else float(label)
    except (TypeError, ValueError):
        value = math.nan
    if split in task.test and value == -1.0 < low:
        return None  # what tensorflow-datasets writes for a label that is hidden
    if not low <= value <= high:
        comma = isinstance(label, str) and label.strip().replace(",", "", 1).isdecimal()
        raise InputError(
            f"{where}: the label should be a number from {low:g} to {high:g} (`label_range` of "
            f"task {task.name}{', with a decimal point' if comma and ',' in label else ''}). "
            f"Received: {label!r:.60}"
        )
    return value


def _label_name(label: Any) -> str | None:
    """A label as text: 1, 1.0 and "1" are the same, JSON's true is "true"."""
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label) if isinstance(label, (str, int, float)) and label != "" else None


def _label_index(task: Task, split: str, where: str, label: Any) -> int:
    name = _label_name(label)
    if name not in task.labels:
        near = difflib.get_close_matches(str(name), task.labels, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        names = ", ".join(task.labels[:40])
        if len(task.labels) > 40:
            names += f" and {len(task.labels) - 40:,} others"
        source = "" if split == task.train else ", as declared or in the training split"
        raise InputError(
            f"{where}: the label should be one of {names}{source}{hint}. Received: {label!r:.60}"
        )
    return task.labels.index(name)


def _tagged_example(task: Task, split: str, identity: str, where: str, row: dict) -> TaggedExample:
    words, tags = row["words"], row.get("tags")
    places = row.get("tag_places")
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise InputError(f"{where}: `words` should be a list of words. Received: {words!r:.60}")
    blank = isinstance(tags, list) and tags and all(tag == "_" for tag in tags)
    if split in task.test and (tags is None or (blank and "_" not in task.labels)):
        return TaggedExample(identity, tuple(words), None)  # "_": not annotated, in CoNLL-U
    if not isinstance(tags, list) or len(tags) != len(words):
        count = f" ({len(tags)} tags)" if isinstance(tags, list) else ""
        raise InputError(
            f"{where}: `tags` should be {len(words)} tags. Received: {tags!r:.60}{count}"
        )
    indices = (
        _label_index(task, split, places[place] if places else where, tag)
        for place, tag in enumerate(tags)
    )
    return TaggedExample(identity, tuple(words), tuple(indices))


def _questions(task: Task, data_dir: str, split: str, path: str) -> list[QuestionExample]:
    examples = _read_questions(task, data_dir, split, path)
    for example in examples:
        where = f"{path}, question {example.id}"
        if example.is_impossible and not task.version_2:
            raise InputError(
                f"{where}: should have an answer unless task {task.name} is declared with "
                f'"version_2": true. Received: an unanswerable question'
            )
        # Without answers there is nothing to train on, and nothing to measure by.
        if not (example.answers or example.is_impossible or split in task.test):
            raise InputError(
                f"{where}: should have an answer or be marked `is_impossible`; only in test splits "
                f"of task {task.name} may answers be missing. Received: no answers in the {split} "
                f"split"
            )
    return examples


def _read_questions(task: Task, data_dir: str, split: str, path: str) -> list[QuestionExample]:
    layout = _from_datasets(task, data_dir)[0]
    if layout.format == "tfds":
        columns = {name: name for name in ("id", "question", "context", "answers")}
        if task.version_2:
            columns["is_impossible"] = "is_impossible"
        layout = dataclasses.replace(layout, columns=columns)
        return [_question(row, where) for where, row in _rows(layout, data_dir, split, path)]
    from finetune.squad.examples import read_squad

    return read_squad(path, training=split == task.train)


def _question(row: dict, where: str) -> QuestionExample:
    from finetune.squad.examples import check_answer_start

    answers = row["answers"]
    if not isinstance(answers, dict) or not {"text", "answer_start"} <= set(answers):
        raise InputError(
            f"{where}: `answers` should hold lists `text` and `answer_start`. "
            f"Received: {answers!r:.60}"
        )
    texts, starts = answers["text"], answers["answer_start"]
    impossible = bool(row.get("is_impossible", False))
    for text, start in [] if impossible else zip(texts, starts):
        check_answer_start(text, start, row["context"], where)
    return QuestionExample(
        row["id"],
        row["question"],
        row["context"],
        () if impossible else tuple(texts),
        None if impossible or not starts else starts[0],
        impossible,
    )


def resolve_labels(task: Task, data_dir: str) -> Task:
    """See finetune.task.resolve_labels."""
    if task.labels or task.kind in ("regression", "span"):
        return task
    place = split_path(task, data_dir, task.train)
    found: collections.Counter[str] = collections.Counter()
    for where, row in _rows(task, data_dir, task.train, place):
        values = row["tags"] if task.kind == "tagging" else [row["label"]]
        if not isinstance(values, list):
            raise InputError(f"{where}: `tags` should be a list of tags. Received: {values!r:.60}")
        names = [_label_name(value) for value in values]
        if None in names:
            number = names.index(None)
            where, value = row.get("tag_places", {number: where})[number], values[number]
            wanted = "not be empty" if value in ("", None) else "be a text or a number"
            raise InputError(f"{where}: the label should {wanted}. Received: {value!r:.60}")
        found.update(names)
    if not found:
        raise _no_examples(task, task.train, place)
    if len(found) < 2:
        raise InputError(
            f"{place}: the training split of task {task.name} should have at least two labels. "
            f"Received: {', '.join(found) or 'none'}"
        )
    # "10" comes after "9".
    ordered = sorted(
        found, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name)
    )
    counted = ", ".join(f"{name} {found[name]:,}" for name in ordered[:_LABELS_SHOWN])
    if len(ordered) > _LABELS_SHOWN:
        counted += f", ... and {len(ordered) - _LABELS_SHOWN:,} more"
    print(f"{task.name} labels, collected from {task.train}: {counted}", file=sys.stderr)
    return dataclasses.replace(task, labels=tuple(ordered))

"""Labels as they are written in files, and checks that they are what they seem."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from errors import InputError, warn

if TYPE_CHECKING:
    from finetune.task import Task
    from finetune.task_files import Source

LABELS_SHOWN = 40  # in messages


def check_counts(task: Task, place: str, counts: collections.Counter[str], least: int = 2) -> None:
    """Warns of labels from which a task cannot be what was meant.

    Args:
        task: with its labels.
        place: the file of the training split.
        counts: how often each label occurs there.
        least: how many labels have to occur.
    """
    if len(counts) < least:
        warn(f"{place}: there is nothing to learn, as the only label is {shown(counts)}")
    alike: dict[str, dict[str, int]] = {}
    for name, count in counts.items():
        alike.setdefault(" ".join(name.split()).casefold(), {})[name] = count
    for names in alike.values():
        if len(names) > 1:
            warn(f"{place}: labels that differ by case or whitespace only: {shown(names)}")


def label_name(where: str, value: Any) -> str:
    """A label as text: 1, 1.0 and "1" are the same, JSON's true is "true".

    Raises:
        InputError: it is empty, or neither a text nor a number; begins with `where`.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (str, int, float)) or value == "":
        raise InputError(
            f"{where}: the label should be a text that is not empty, or a number. Received:"
            f" {value!r:.60}"
        )
    return str(value)


def label_index(source: Source, where: str, value: Any) -> int:
    """The place in `task.labels` of a value in a file.

    A label that the task does not have is noted in `source.unseen`, so that the error of
    `read_split` names all of them.

    Raises:
        InputError: see `label_name`.
    """
    name = label_name(where, value)
    if name in source.task.labels:
        return source.task.labels.index(name)
    source.unseen.setdefault(name, []).append(where)
    return -1


def shown(counts: Mapping[str, int]) -> str:
    """Labels with their numbers, the first of many."""
    said = [f"{name!r} {count:,}" for name, count in itertools.islice(counts.items(), LABELS_SHOWN)]
    more = len(counts) - len(said)
    return ", ".join([*said, *([f"... and {more:,} more"] if more else [])]) or "none"

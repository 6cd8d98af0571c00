"""Labels as they are written in files, and checks that they are what they seem."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from common.errors import InputError, warn

if TYPE_CHECKING:
    from finetune.declaration import Task
    from finetune.readers.lines import Place
    from finetune.task_files import Source

LABELS_SHOWN = 40  # in messages


def reject_header(columns: dict[str, Any], row: dict[str, Any]) -> None:
    """Raises InputError if each of at least two named columns of a row holds its own name."""
    named = {role: name for role, name in columns.items() if isinstance(name, str) and role in row}
    same = all(isinstance(row[role], str) and row[role].strip() == named[role] for role in named)
    if len(named) > 1 and same:
        raise InputError(
            f"should be an example. Received: the column names again, {', '.join(named.values())}"
        )


def check_counts(task: Task, place: str, counts: collections.Counter[str], least: int) -> None:
    """Rejects, or warns of, labels that occur in a training file from which nothing is learned."""
    if len(counts) < least:
        raise InputError(
            f"{place}: the training split of task {task.name} should have at least {least} labels. "
            f"Received: {shown(counts)}"
        )
    by_case: dict[str, dict[str, int]] = {}
    for name, count in counts.items():
        by_case.setdefault(" ".join(name.split()).casefold(), {})[name] = count
    for alike in by_case.values():
        if len({" ".join(name.split()) for name in alike}) < len(alike):
            raise InputError(f"{place}: labels differ by whitespace only: {shown(alike)}")
        if len(alike) > 1:
            warn(f"{place}: labels that differ by case only: {shown(alike)}")


def label_name(value: Any) -> str:
    """A label as text: 1, 1.0 and "1" are the same, JSON's true is "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (str, int, float)) or value == "":
        raise InputError(
            f"the label should be a text that is not empty, or a number. Received: {value!r:.60}"
        )
    return str(value)


def label_index(source: Source, where: str | Place, value: Any) -> int:
    """The place in `task.labels` of a value in a file.

    A label that the task does not have is noted in `source.unseen`, so that the error of
    `read_split` names all of them.
    """
    name = label_name(value)
    if name in source.task.labels:
        return source.task.labels.index(name)
    source.unseen.setdefault(name, []).append(where)
    return -1


def shown(counts: Mapping[str, int]) -> str:
    """Labels with their numbers, the first of many."""
    said = [f"{name!r} {count:,}" for name, count in itertools.islice(counts.items(), LABELS_SHOWN)]
    more = len(counts) - len(said)
    return ", ".join([*said, *([f"... and {more:,} more"] if more else [])]) or "none"

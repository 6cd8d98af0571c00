"""Whether a task's labels are what they seem: spelled alike, often enough, no header among them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from errors import InputError, warn
from settings import did_you_mean

if TYPE_CHECKING:
    from finetune.task import Task

LABELS_SHOWN = 40  # in messages
# From so many labels seen once, if they are at least half of all labels, the column seems wrong.
_MANY_ONCE = 50
# A label seen once, in the first row, is conspicuous where every other one is seen so often.
_OFTEN = 5


def reject_header(columns: dict[str, str | int], where: str, row: dict[str, Any]) -> None:
    """Rejects a row that repeats the names of its columns, as in tables put one after another.

    Raises:
        InputError: each of at least two named columns holds its own name; begins with `where`.
    """
    named = {role: name for role, name in columns.items() if isinstance(name, str) and role in row}
    same = all(isinstance(row[role], str) and row[role].strip() == named[role] for role in named)
    if len(named) > 1 and same:
        raise InputError(
            f"{where}: should be an example. Received: the column names again, "
            f"{', '.join(named.values())}"
        )


def check_counts(task: Task, place: str, counts: collections.Counter[str]) -> None:
    """Rejects, or warns of, labels from which a task cannot be what was meant.

    Args:
        task: with its labels.
        place: the file of the training split.
        counts: how often each label occurs there.

    Raises:
        InputError: only one label occurs, or two differ by whitespace only; begins with `place`.
    """
    if len(counts) < 2:
        raise InputError(
            f"{place}: the training split of task {task.name} should have at least two labels. "
            f"Received: {', '.join(map(repr, counts)) or 'none'}"
        )
    for names in _alike(counts, lambda name: " ".join(name.split())):
        raise InputError(
            f"{place}: labels should differ by more than whitespace. "
            f"Received: {_counted(names, counts)}"
        )
    for names in _alike(counts, lambda name: " ".join(name.split()).casefold()):
        warn(f"{place}: labels that differ by case only: {_counted(names, counts)}")


def label_name(value: Any) -> str | None:
    """A label as text: 1, 1.0 and "1" are the same, JSON's true is "true"; None: it is none."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, (str, int, float)) and value != "" else None


def label_index(task: Task, split: str, where: str, value: Any) -> int:
    """The place in `task.labels` of a value in a file.

    Raises:
        InputError: it is no label of the task; begins with `where`.
    """
    name = label_name(value)
    if name not in task.labels:
        names = ", ".join(task.labels[:LABELS_SHOWN])
        if len(task.labels) > LABELS_SHOWN:
            names += f" and {len(task.labels) - LABELS_SHOWN:,} others"
        source = "" if split == task.train else ", as declared or in the training split"
        raise InputError(
            f"{where}: the label should be one of {names}{source}. Received: {value!r:.60}."
            f"{did_you_mean(str(name), task.labels)}"
        )
    return task.labels.index(name)


def _alike(names: Iterable[str], spelling: Callable[[str], str]) -> list[list[str]]:
    """The names that share a spelling, where there are several."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(spelling(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _counted(names: Sequence[str], counts: collections.Counter[str]) -> str:
    said = [(name, counts[name], "time" if counts[name] == 1 else "times") for name in names]
    return " and ".join(f"{name!r} ({count:,} {times})" for name, count, times in said)


def warn_of_rare(task: Task, place: str, counts: collections.Counter[str], first: str) -> None:
    """Warns of labels that seem to be of another column, or a header.

    Arguments as of `check_counts`; `first` is the label of the first row.
    """
    once = [name for name, count in counts.items() if count == 1]
    if len(once) >= _MANY_ONCE and 2 * len(once) >= len(counts):
        numbers = sum(map(_is_number, once)) > len(once) / 2
        advice = "numbers to predict need `kind` regression" if numbers else "is it that column?"
        warn(
            f"{place}: {len(once):,} of {len(counts):,} labels are seen once, such as {once[0]!r}; "
            f"{advice}"
        )
    elif once == [first] and min(counts[name] for name in counts if name != first) >= _OFTEN:
        warn(
            f"{place}: the label {first!r} is seen in the first row only; is that a line of column "
            f"names? (`header` of task {task.name})"
        )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True

"""Whether a task's labels are what they seem: spelled alike, often enough, no header among them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from errors import InputError, warn

if TYPE_CHECKING:
    from finetune.task import Example, Task

# From so many labels seen once, if they are at least half of all labels, the column seems wrong.
_MANY_ONCE = 50
# A label seen once, in the first row, is conspicuous where every other one is seen so often.
_OFTEN = 5


def check_declared(task: Task, where: str) -> None:
    """Rejects `labels` where the kind has none.

    Args:
        task: as declared.
        where: the declaration.

    Raises:
        InputError: names the declaration.
    """
    if task.labels and task.kind not in ("classification", "tagging"):
        raise InputError(
            f"{where}: `labels` should be given for classification and tagging only; a {task.kind} "
            f"task has none. Received: {', '.join(task.labels[:8])}"
        )


def refuse_header(columns: dict[str, str | int], where: str, row: dict[str, Any]) -> None:
    """Rejects a row that repeats the names of its columns, as in tables put one after another.

    Args:
        columns: role -> name or number of its column.
        where: file and line.
        row: role -> value.

    Raises:
        InputError: each of at least two named columns holds its own name; names file and line.
    """
    named = {role: name for role, name in columns.items() if isinstance(name, str) and role in row}
    same = all(isinstance(row[role], str) and row[role].strip() == named[role] for role in named)
    if len(named) > 1 and same:
        raise InputError(
            f"{where}: should be an example. Received: the column names again, "
            f"{', '.join(named.values())}"
        )


def check_training(task: Task, place: str, examples: Sequence[Example]) -> None:
    """Rejects, or warns of, labels from which a task cannot be what was meant.

    Args:
        task: with its labels.
        place: the file of the training split, for messages.
        examples: its examples, at least one.

    Raises:
        InputError: only one label occurs, or two differ by whitespace only; names file and labels.
    """
    if task.kind == "span":
        return
    if task.kind == "regression":
        found = {example.label for example in examples}
        if len(found) == 1 and len(examples) > 1:
            warn(f"{place}: every label is {found.pop():g}; there is nothing to learn")
        return
    if task.kind == "tagging":
        tags = (tag for example in examples for tag in example.tags)
    else:
        tags = (example.label for example in examples)
    counts = collections.Counter(task.labels[tag] for tag in tags)
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
    if task.kind == "classification":
        _warn_of_rare(task, place, counts, task.labels[examples[0].label])


def _alike(names: Iterable[str], spelling: Callable[[str], str]) -> list[list[str]]:
    """The names that share a spelling, where there are several."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(spelling(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _counted(names: Sequence[str], counts: collections.Counter[str]) -> str:
    said = [(name, counts[name], "time" if counts[name] == 1 else "times") for name in names]
    return " and ".join(f"{name!r} ({count:,} {times})" for name, count, times in said)


def _warn_of_rare(task: Task, place: str, counts: collections.Counter[str], first: str) -> None:
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

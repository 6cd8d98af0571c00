"""Labels as they are written in files, and checks that they are what they seem."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from common.errors import InputError, warn

if TYPE_CHECKING:
    from finetune.readers.lines import Place
    from finetune.task import Task
    from finetune.task_files import Source

LABELS_SHOWN = 40  # in messages
# From so many labels seen once, if they are at least half of all labels, the column seems wrong.
_MANY_ONCE = 50
# A label seen once, in the first row, is conspicuous where every other one is seen so often.
_OFTEN = 5


def reject_header(columns: dict[str, Any], row: dict[str, Any]) -> None:
    """Raises InputError if each of at least two named columns of a row holds its own name."""
    named = {role: name for role, name in columns.items() if isinstance(name, str) and role in row}
    same = all(isinstance(row[role], str) and row[role].strip() == named[role] for role in named)
    if len(named) > 1 and same:
        raise InputError(
            f"should be an example. Received: the column names again, {', '.join(named.values())}"
        )


def check_counts(task: Task, place: str, counts: collections.Counter[str], least: int = 2) -> None:
    """Rejects, or warns of, labels from which a task cannot be what was meant.

    Args:
        task: with its labels.
        place: the file of the training split.
        counts: how often each label occurs there.
        least: how many labels have to occur.
    """
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


def warn_of_rare(task: Task, place: str, counts: collections.Counter[str], first: str) -> None:
    """Warns of labels that seem to be of another column, or a header.

    Arguments as of `check_counts`; `first` is the label of the first row.
    """
    once = [name for name, count in counts.items() if count == 1]
    if len(once) >= _MANY_ONCE and 2 * len(once) >= len(counts):
        warn(
            f"{place}: {len(once):,} of {len(counts):,} labels are seen once, such as {once[0]!r}; "
            f"is it that column? Numbers to predict need `kind` regression"
        )
    elif once == [first] and min(counts[name] for name in counts if name != first) >= _OFTEN:
        warn(
            f"{place}: the label {first!r} is seen in the first row only; is that a line of column "
            f"names? (`header` of task {task.name})"
        )

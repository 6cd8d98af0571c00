"""Texts in the forms that Python programs have them, as the inputs of a signature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from errors import InputError
from finetune.readers.tables import gathered
from serving.records import WORD_LIST, Inputs, Record, check_texts

_LISTS = (list, tuple, np.ndarray, pd.Series)


def is_one_row(rows: Any, inputs: Inputs) -> bool:
    """Whether this is a row and not several: a text, a mapping, or a tuple of all the inputs."""
    if isinstance(rows, (str, Mapping)):
        return True
    return isinstance(rows, tuple) and not inputs.one_text and len(rows) == len(inputs.names)


def are_words(rows: Any, inputs: Inputs) -> bool:
    """Whether rows, or the one row, are lists of words: `inputs` are those of `words`."""
    if isinstance(rows, pd.DataFrame):
        return inputs.columns(rows.columns)[WORD_LIST] in rows.columns
    first = next(iter(rows), None) if isinstance(rows, _LISTS) else rows
    return isinstance(first, (list, tuple, np.ndarray)) or (
        isinstance(first, Mapping) and inputs.columns(first)[WORD_LIST] in first
    )


def records(rows: Any, inputs: Inputs) -> list[Record]:
    """The rows of a signature's inputs.

    Args:
        rows: a DataFrame, whose columns are called as the inputs or as in the task's files; or
            any iterable of rows. A row is a text where there is one input; a list of words where
            that is a list; a tuple of all inputs in their order; or a mapping by their names.
        inputs: of the signature.

    Raises:
        InputError: there are no rows, or one is not of this form; names it by its number from 0.
    """
    if isinstance(rows, pd.DataFrame):
        values = _of_frame(rows, inputs)
    elif isinstance(rows, (bytes, bytearray)) or not np.iterable(rows):
        raise InputError(f"texts should be a list of texts. Received: {_shown(rows)}")
    else:
        values = (_of_row(f"row {i}", row, inputs) for i, row in enumerate(rows))
    found = []
    for number, row in enumerate(values):
        check_texts(f"row {number}", row, inputs.lists)
        found.append(Record(f"row {number}", str(number), row))
    if not found:
        raise InputError("texts should be at least one. Received: none")
    return found


def _of_frame(frame: pd.DataFrame, inputs: Inputs) -> Iterable[dict[str, Any]]:
    columns = inputs.columns(frame.columns)
    columns.pop("id")
    wanted = {
        role: (names if isinstance(names, tuple) else (names,)) for role, names in columns.items()
    }
    lacking = [
        " or ".join(map(repr, names))
        for names in wanted.values()
        if not {*names} & {*frame.columns}
    ]
    if lacking:
        raise InputError(
            f"the table should have the column {', '.join(lacking)}. Received:"
            f" {', '.join(map(repr, frame.columns))}"
        )
    for name in set().union(*wanted.values()):
        if list(frame.columns).count(name) > 1:
            raise InputError(f"the table should have the column {name!r} once")
    chosen = [next(name for name in names if name in frame.columns) for names in wanted.values()]
    for row in zip(*(frame[name] for name in chosen)):
        yield _plain(gathered(dict(zip(wanted, row))), inputs)


def _of_row(where: str, row: Any, inputs: Inputs) -> dict[str, Any]:
    if isinstance(row, Mapping):
        lacking = [name for name in inputs.names if name not in row]
        if lacking:
            raise InputError(f"{where}: should have {', '.join(lacking)}. Received: {_shown(row)}")
        return _plain({name: row[name] for name in inputs.names}, inputs)
    if len(inputs.names) == 1:
        return _plain({inputs.names[0]: row}, inputs)
    if not isinstance(row, (tuple, list)) or len(row) != len(inputs.names):
        raise InputError(f"{where}: should be ({', '.join(inputs.names)}). Received: {_shown(row)}")
    return _plain(dict(zip(inputs.names, row)), inputs)


def _plain(row: dict[str, Any], inputs: Inputs) -> dict[str, Any]:
    """Lists as lists, of which NumPy and pandas have their own kinds; texts as they are."""
    return {
        name: list(value) if name in inputs.lists and isinstance(value, _LISTS) else value
        for name, value in row.items()
    }


def _shown(value: Any) -> str:
    return f"{value!r:.60}"

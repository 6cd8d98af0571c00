"""Texts in the forms that Python programs have them, as the inputs of a signature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from errors import InputError
from finetune.readers.tables import names_in
from serving.records import Inputs, Record, check_texts

_LISTS = (list, tuple, np.ndarray, pd.Series)


def is_one_row(rows: Any, inputs: Inputs) -> bool:
    """Whether this is a row and not several: a text, a mapping, or a tuple of all the inputs."""
    if isinstance(rows, (str, Mapping)):
        return True
    return isinstance(rows, tuple) and not inputs.one_text and len(rows) == len(inputs.names)


def are_words(rows: Any, inputs: Inputs) -> bool:
    """Whether rows, or the one row, are lists of words: `inputs` are those of `words`."""
    if isinstance(rows, pd.DataFrame):
        return inputs.are_in(rows.columns)
    first = next(iter(rows), None) if isinstance(rows, _LISTS) else rows
    return isinstance(first, (list, tuple, np.ndarray)) or (
        isinstance(first, Mapping) and inputs.are_in(first)
    )


def records(rows: Any, inputs: Inputs) -> list[Record]:
    """The rows of a signature's inputs; an InputError names a row by its number from 0.

    Args:
        rows: a DataFrame, whose columns are called as the inputs or as in the task's files; or
            any iterable of rows. A row is a text where there is one input; a list of words where
            that is a list; a tuple of all inputs in their order; or a mapping by such names.
        inputs: of the signature.
    """
    if isinstance(rows, pd.DataFrame):
        rows = _mappings(rows, inputs)
    elif isinstance(rows, (bytes, bytearray)) or not np.iterable(rows):
        raise InputError(f"texts should be a list of texts. Received: {rows!r:.60}")
    found = []
    for number, row in enumerate(rows):
        where = f"row {number}"
        values = _values(where, row, inputs)
        check_texts(where, values, inputs.lists)
        found.append(Record(where, str(number), values))
    if not found:
        raise InputError("texts should be at least one. Received: none")
    return found


def _mappings(frame: pd.DataFrame, inputs: Inputs) -> Iterator[dict[str, Any]]:
    names = {*names_in(inputs.columns(frame.columns).values())} - {"id"}
    wanted = [name for name in frame.columns if name in names]
    for name in wanted:
        if wanted.count(name) > 1:
            raise InputError(f"the table should have the column {name!r} once")
    for row in zip(*(frame[name] for name in wanted)):
        yield dict(zip(wanted, row))


def _values(where: str, row: Any, inputs: Inputs) -> dict[str, Any]:
    """The inputs of a row, lists as lists, of which NumPy and pandas have their own kinds."""
    if isinstance(row, Mapping):
        row = inputs.values(where, row)
        row.pop("id", None)
    elif len(inputs.names) == 1:
        row = {inputs.names[0]: row}
    elif isinstance(row, (tuple, list)) and len(row) == len(inputs.names):
        row = dict(zip(inputs.names, row))
    else:
        names = ", ".join(inputs.names)
        raise InputError(f"{where}: should be ({names}). Received: {row!r:.60}")
    return {
        name: list(value) if name in inputs.lists and isinstance(value, _LISTS) else value
        for name, value in row.items()
    }

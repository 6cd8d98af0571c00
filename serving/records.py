"""Converts rows of files, standard input and Python programs to inputs of a signature."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from convbert.common.errors import InputError
from convbert.common.files import is_unicode
from convbert.finetune.kinds.texts import INPUTS
from convbert.finetune.readers.lines import Place, parse_object, read_lines
from convbert.finetune.readers.tables import (
    Column,
    Row,
    Table,
    find_columns,
    read_frame,
    read_table,
    row_of,
)

FORMATS = ("lines", "tsv", "csv", "jsonl")
_NOT_LINES = ("gz", "bz2", "xz", "zst", "zip", "parquet", "conll", "conllu")
# Inputs of signatures with other names than the role of the task's column.
_ROLES = {name: role for role, name in INPUTS.items()}
WORD_LIST = "words"  # the signature for sentences as lists of words, and its input
_LISTS = (list, tuple, np.ndarray, pd.Series)


class Record(NamedTuple):
    """One row."""

    where: str | Place  # such as "reviews.tsv, line 3"
    id: str  # from the column `id`, or the row number from 0
    values: dict[str, Any]  # input -> text, or list of texts


class Inputs:
    """The inputs of a signature, and their possible column names in files.

    Inputs also accept the column names of `task`, a declaration as JSON. `lists` are the inputs
    that are lists of texts.
    """

    def __init__(
        self, names: Iterable[str], task: dict[str, Any] | None, lists: Collection[str] = ()
    ):
        self.names, self.lists = list(names), lists
        task = task or {"columns": {}, "header": True}
        self.header, self._columns = task["header"], task["columns"]

    def columns(self) -> dict[str, Column]:
        """Returns input or `id` -> possible column names: its own, and last the task's."""
        columns: dict[str, Column] = {}
        for name in (*self.names, "id"):
            own = self._column(name)
            columns[name] = (name,) if own in (None, name) else (name, own)
        return columns

    def numbers(self) -> dict[str, Column]:
        """Returns input -> column number without a header: the task's, or in order."""
        own: dict[str, Any] = {name: self._column(name) for name in self.names}
        numbers = {*own.values()}
        if all(isinstance(of, int) for of in numbers) and len(numbers) == len(own):
            return own
        return {name: number for number, name in enumerate(self.names)}

    def _column(self, name: str) -> str | int | None:
        return self._columns.get(_ROLES.get(name, name))

    def are_in(self, known: Collection[str]) -> bool:
        """Returns True if the `known` column names, or keys, include one for each input."""
        columns: dict[str, Any] = self.columns()
        del columns["id"]
        return all({*names} & {*known} for names in columns.values())

    def values(self, where: str | Place, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs, and `id` if present, of a row with named columns."""
        return row_of(row, find_columns(where, self.columns(), row, ("id",)))


class Rows(NamedTuple):
    """Lines of rows, with the first one read ahead."""

    name: str  # the file's name in errors
    format: str  # one of FORMATS
    first: bytes  # the first line that is not blank
    lines: Iterator[bytes]  # all of them

    def keys(self) -> list[str]:
        """Returns the keys of the first line if it is a JSON object, else []."""
        try:
            value = json.loads(self.first)
        except (ValueError, RecursionError):
            return []  # the reader reports the error
        return list(value) if isinstance(value, dict) else []


def source(name: str, lines: Iterable[bytes], file_format: str | None = None) -> Rows:
    """Reads ahead to the first row, which decides the signature, and the format if it is not given.

    The default format is the extension's, else JSON lines if the first line begins with a brace,
    else lines. Bytes that are not UTF-8 become U+FFFD, as in the model's graph.
    """
    lines, begun = (line.decode("utf-8", "replace").encode() for line in lines), []
    for line in lines:
        begun.append(line)
        if line.strip():
            break
    first = begun[-1].removeprefix(b"\xef\xbb\xbf") if begun else b""
    extension = os.path.splitext(name)[1][1:].lower()
    if file_format is None:
        if extension in _NOT_LINES:
            raise InputError(f"{name}: should be a file of {', '.join(FORMATS)}, see --format")
        guess = "jsonl" if first.lstrip().startswith(b"{") else "lines"
        file_format = extension if extension in FORMATS else guess  # no extension is .lines
    return Rows(name, file_format, first, itertools.chain(begun, lines))


def read_records(rows: Rows, inputs: Inputs) -> Iterator[Record]:
    """Yields the rows of a file, as they come; an InputError names the line."""
    path, file_format, wanted = rows.name, rows.format, ", ".join(inputs.names)
    found: Iterable[Row]
    if not rows.first:
        found = ()
    elif file_format in ("tsv", "csv"):
        found = read_table(
            path,
            file_format == "csv",
            inputs.columns() if inputs.header else inputs.numbers(),
            header=inputs.header,
            optional=("id",),
            source=rows.lines,
        )
    elif file_format == "lines":
        if len(inputs.names) != 1 or inputs.lists:
            raise InputError(
                f"{path}: lines hold one text each, but the model needs {wanted}; use --format"
                f" {'' if inputs.lists else 'tsv, csv or '}jsonl"
            )
        lines = read_lines(path, source=rows.lines)
        found = ((where, {inputs.names[0]: line}) for where, line in lines)
    else:
        lines = read_lines(path, source=rows.lines)
        objects = ((where, parse_object(line, where)) for where, line in lines if line.strip())
        found = ((where, inputs.values(where, row)) for where, row in objects)
    yield from _checked(found, inputs)


def is_one_row(rows: Any, inputs: Inputs) -> bool:
    """Returns True for a single row: a text, a mapping, or a tuple of all inputs."""
    if isinstance(rows, (str, Mapping)):
        return True
    if not isinstance(rows, tuple) or len(inputs.names) < 2 or len(rows) != len(inputs.names):
        return False
    pairs = zip(inputs.names, rows)
    return not any(
        isinstance(value, Mapping) or (isinstance(value, _LISTS) and name not in inputs.lists)
        for name, value in pairs
    )


def are_words(rows: Any, inputs: Inputs) -> bool:
    """Returns True if rows are lists of words, or one; `inputs` are those of `words`."""
    if isinstance(rows, pd.DataFrame):
        return inputs.are_in(rows.columns)
    first = next(iter(rows), None) if isinstance(rows, _LISTS) else rows
    is_list = isinstance(first, (list, tuple, np.ndarray))
    return is_list or (isinstance(first, Mapping) and inputs.are_in(first))


def records(rows: Any, inputs: Inputs) -> list[Record]:
    """Converts rows of a Python program; an InputError names a row by its number from 0.

    A row is a text or a list of words for a single input, a tuple of all inputs in order, or a
    mapping by the names of inputs or of the task's columns.
    """
    if isinstance(rows, pd.DataFrame):
        table = Table("the table", rows)
        found = read_frame(table, inputs.columns(), optional=("id",))
    elif isinstance(rows, (bytes, bytearray)) or not np.iterable(rows):
        raise InputError(f"texts should be a list of texts. Received: {rows!r:.60}")
    else:
        found = ((f"row {i}", _values(f"row {i}", row, inputs)) for i, row in enumerate(rows))
    records = list(_checked(found, inputs))
    if not records:
        raise InputError("there should be at least one text. Received: none")
    return records


def _values(where: str, row: Any, inputs: Inputs) -> dict[str, Any]:
    """Returns the inputs of a row; converts lists of NumPy and pandas to Python's."""
    if isinstance(row, Mapping):
        row = inputs.values(where, row)
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


def _checked(rows: Iterable[Row], inputs: Inputs) -> Iterator[Record]:
    """Yields records; InputError unless values are texts or, for lists, lists of texts."""
    for number, (where, values) in enumerate(rows):
        identity = values.pop("id", None)
        for name, value in values.items():
            is_list = name in inputs.lists
            texts = value if is_list else [value]
            valid = isinstance(texts, list) and all(
                isinstance(text, str) and (text or not is_list) and is_unicode(text)
                for text in texts
            )
            if not valid:
                expected = "a list of non-empty texts" if is_list else "a text"
                expected += ", valid in Unicode"
                raise InputError(f"{where}: `{name}` should be {expected}. Received: {value!a:.60}")
        yield Record(where, str(number if identity is None else identity), values)

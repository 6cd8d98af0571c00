"""Rows of TSV, CSV and JSON-lines files and of DataFrames: {role: value} of a task's columns."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from errors import InputError
from files import is_unicode
from finetune.readers.lines import parse_object, read_lines
from settings import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[str, dict[str, Any]]  # where it stands ("path, line 3"), and its values by role
# A column's name, its number from 0, or names of which the first that is there counts.
Column = str | int | tuple[str, ...]


class Table(NamedTuple):
    """A DataFrame as a source of rows; `name` and the index say in errors where a row is."""

    name: str
    frame: pd.DataFrame


def spread(columns: Mapping[str, Any]) -> dict[str, Column]:
    """Columns of which a role may have a list: each item under a role of its own, "role[0]".

    A list is of columns that are all there; a tuple is of names for one column, see `Column`.
    """
    found: dict[str, Column] = {}
    for role, column in columns.items():
        items = enumerate(column) if isinstance(column, list) else ()
        found |= {f"{role}[{i}]": own for i, own in items} or {role: column}
    return found


def gathered(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `spread` columns with their lists, which end before the last cells of ""."""
    found: dict[str, Any] = {}
    lists: dict[str, list] = {}
    for role, value in row.items():
        name, of_list, place = role.partition("[")
        if of_list:
            found[name] = lists.setdefault(name, [])
            left_out = int(place[:-1]) - len(lists[name])  # where columns may be missing
            lists[name] += [*[""] * left_out, value]
        else:
            found[role] = value
    for values in lists.values():
        while values and values[-1] == "":
            values.pop()
    return found


def _raise(error: InputError) -> None:
    raise error


def read_table(
    path: str,
    quoted: bool,
    columns: Mapping[str, Column],
    *,
    header: bool = True,
    optional: Collection[str] = (),
    lenient: bool = False,
    source: Iterable[bytes] | None = None,
    reject: Callable[[InputError], None] = _raise,
    delimiter: str | None = None,
) -> Iterator[Row]:
    """Yields the rows of a TSV or CSV file; blank lines are passed over.

    Args:
        path: the file.
        quoted: True for comma-separated values, quoted where needed (RFC 4180); False for
            tab-separated ones, where a quotation mark is a character like any other (GLUE).
        columns: role -> name, or number from 0, of its column, or several names that it may have.
        header: whether the first line names the columns.
        optional: roles whose column may be missing from the table.
        lenient: whether rows with a wrong number of fields are left out, and counted in the log.
        source: see `read_lines`.
        reject: is given the error of a row with a wrong number of fields, which is left out if
            this does not raise it.
        delimiter: the character between columns. None: a tab, or a comma with `quoted`.

    Raises:
        InputError: a missing column, a wrong number of fields, broken quoting.
    """
    delimiter = delimiter or ("," if quoted else "\t")
    lines = read_lines(path, keep_ends=quoted, source=source)
    records = _quoted(path, lines, delimiter) if quoted else _plain(lines, delimiter)
    first = next(records, None)
    if first is None:
        return
    (line, fields), skipped = first, []
    places = _places(f"{path}, line {line}", columns, fields, header, optional, delimiter)
    for number, values in records if header else itertools.chain([first], records):
        where = f"{path}, line {number}"
        if len(values) == len(fields):
            yield where, {role: values[place] for role, place in places.items()}
        elif lenient:
            skipped.append(number)
        else:
            expected = f"{len(fields)} fields with {delimiter!r} between them, as the first line"
            reject(InputError(f"{where}: should have {expected}. Received: {len(values)}"))
    if skipped:
        logging.warning(
            "%s: %d rows without the %d fields of the first line were skipped (the first: line %d)",
            path, len(skipped), len(fields), skipped[0],
        )  # fmt: skip


_Records = Iterator[tuple[int, list[str]]]  # number of the first line, fields


def _plain(lines: Iterator[tuple[int, str]], delimiter: str) -> _Records:
    # Not by the module csv, for which a carriage return within a text ends a row.
    for number, line in lines:
        if line:
            yield number, line.split(delimiter)


def _quoted(path: str, lines: Iterator[tuple[int, str]], delimiter: str) -> _Records:
    csv.field_size_limit(2**31 - 1)  # a document may be longer than the default of 131,072
    reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
    number = 1  # where the record begins: one with line breaks inside of quotes ends later
    try:
        for fields in reader:
            if fields:
                yield number, fields
            number = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {number}: not a row of quoted fields ({error})") from error


def _places(
    where: str,
    columns: Mapping[str, Column],
    fields: list[str],
    header: bool,
    optional: Collection[str],
    delimiter: str,
) -> dict[str, int]:
    """Role -> position in a row, from the first row of the table."""
    names = [field.strip() for field in fields] if header else [None] * len(fields)
    places: dict[str, int] = {}
    for role, column in columns.items():
        if isinstance(column, int):
            found = [column % len(fields)] if -len(fields) <= column < len(fields) else []
        else:
            own = next((name for name in _names(column) if name in names), None)
            found = [place for place, name in enumerate(names) if name == own and header]
        if len(found) == 1:
            places[role] = found[0]
        elif found or role not in optional:
            raise InputError(
                f"{where}: there should be one column {_either(column)} for `{role}`, with"
                f" {delimiter!r} (`delimiter`) between columns. Received: {fields!r:.300}"
            )
    return places


def _names(column: Column) -> tuple[str | int, ...]:
    return column if isinstance(column, tuple) else (column,)


def _either(column: Column) -> str:
    return " or ".join(map(repr, _names(column)))


def read_jsonl(
    path: str, columns: Mapping[str, Column], *, optional: Collection[str] = ()
) -> Iterator[Row]:
    """Yields the rows of a file with one JSON object per line; arguments as `read_table`'s.

    Raises:
        InputError: a line that is not a JSON object, a missing key, an unpaired surrogate.
    """
    for number, line in read_lines(path):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, parse_json_row(where, line, columns, optional)


def parse_json_row(
    where: str, line: str, columns: Mapping[str, Column], optional: Collection[str] = ()
) -> dict[str, Any]:
    """The values, by role, of a line that is a JSON object; arguments as `read_jsonl`'s.

    Raises:
        InputError: the line is not an object, lacks a key, or holds an unpaired surrogate; begins
            with `where`.
    """
    record, row = parse_object(line, where), {}
    for role, key in columns.items():
        own = next((name for name in _names(key) if name in record), None)
        if own is not None:
            row[role] = record[own]
        elif role not in optional:
            raise InputError(
                f"{where}: there should be the key {_either(key)} for `{role}`. Received:"
                f" {list(record)!r:.300}.{did_you_mean(str(key), record)}"
            )
    return row


def read_frame(
    table: Table, columns: Mapping[str, str], *, optional: Collection[str] = ()
) -> Iterator[Row]:
    """Yields the rows of a DataFrame; what is missing (None, NaN) is None. See `read_table`.

    Raises:
        InputError: an unpaired surrogate.
        KeyError: a column is missing.
    """
    names = list(table.frame.columns)
    found = {role: name for role, name in columns.items() if name in names or role not in optional}
    columns = (table.frame[name] for name in found.values())
    for number, *values in zip(table.frame.index, *columns, strict=True):
        where = f"{table.name}, row {number}"
        yield where, {role: _value(where, value) for role, value in zip(found, values)}


def _value(where: str, value: Any) -> Any:
    """A cell as JSON would have it."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_value(where, item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not is_unicode(value):
        raise InputError(f"{where}: the text contains an unpaired surrogate. Received: {value!a}")
    return None if type(value).__name__ in ("NAType", "NaTType") or value != value else value

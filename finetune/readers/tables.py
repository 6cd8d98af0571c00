"""Rows of TSV, CSV and JSON-lines files and of DataFrames: {role: value} of a task's columns."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from common.errors import InputError
from common.files import is_unicode
from common.settings import did_you_mean
from finetune.readers.lines import Place, parse_object, read_lines

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[str | Place, dict[str, Any]]  # where it is, and its values by role
# A column's name, its number from 0, or names of which the first that is there counts; or a list of
# columns, each of which holds an item of the role's value.
Column = str | int | tuple[str, ...] | list
_Key = str | int | list[str | int | None]


class Table(NamedTuple):
    """A DataFrame as a source of rows; `name` and the index say in errors where a row is."""

    name: str
    frame: pd.DataFrame


def find_columns(
    where: str | Place,
    columns: Mapping[str, Column],
    known: Collection,
    optional: Collection[str] = (),
    hint: str = "",
) -> dict[str, _Key]:
    """Role -> its key among the `known` ones; a list, with None for those that are not there.

    Roles that are `optional` may be missing, and then are left out.
    """
    found: dict[str, Any] = {}
    for role, column in columns.items():
        keys = []
        for own in column if isinstance(column, list) else [column]:
            names = own if isinstance(own, tuple) else (own,)
            keys.append(next((name for name in names if name in known), None))
            if keys[-1] is None and role not in optional:
                said = " or ".join(map(repr, names))
                received = [name for name in known if isinstance(name, str)] or list(known)
                raise InputError(
                    f"{where}: there should be one column {said} for `{role}`{hint}. Received:"
                    f" {received!r:.300}.{did_you_mean(str(names[0]), map(str, known))}"
                )
        if any(key is not None for key in keys):
            found[role] = keys if isinstance(column, list) else keys[0]
    return found


def row_of(record: Any, keys: Mapping[str, _Key]) -> dict[str, Any]:
    """Role -> value; a list of columns ends before its last cells of "" (or missing ones)."""
    row = {}
    for role, key in keys.items():
        if isinstance(key, list):
            row[role] = ["" if own is None else record[own] for own in key]
            while row[role] and row[role][-1] == "":
                row[role].pop()
        else:
            row[role] = record[key]
    return row


def names_in(columns: Iterable[Any]) -> list[Any]:
    """Returns the names of columns (`Column`), those of lists among them, each once."""
    found: dict[Any, None] = {}
    for column in columns:
        several = isinstance(column, (list, tuple))
        found |= dict.fromkeys(names_in(column) if several else [column])
    return [name for name in found if name is not None]


def raised(error: InputError) -> None:
    """Raises the error of a row: the default of readers that can leave rows out."""
    raise error


def read_table(
    path: str,
    quoted: bool,
    columns: Mapping[str, Column],
    *,
    header: bool = True,
    optional: Collection[str] = (),
    source: Iterable[bytes] | None = None,
    reject: Callable[[InputError], None] = raised,
    delimiter: str | None = None,
) -> Iterator[Row]:
    """Yields the rows of a TSV or CSV file; blank lines are passed over.

    Args:
        quoted: True for comma-separated values, quoted where needed (RFC 4180); False for
            tab-separated ones, where a quotation mark is a character like any other (GLUE).
        reject: is given the error of a row with a wrong number of fields, which is left out if
            this does not raise it.
        delimiter: the character between columns. None: a tab, or a comma with `quoted`.
    """
    delimiter = delimiter or ("," if quoted else "\t")
    lines = read_lines(path, keep_ends=quoted, source=source)
    records = _quoted(path, lines, delimiter) if quoted else _plain(lines, delimiter)
    first = next(records, None)
    if first is None:
        return
    where, fields = first
    count, hint = len(fields), f", with {delimiter!r} (`delimiter`) between columns"
    places: dict[Any, int] = {number: number % count for number in range(-count, count)}
    if header:
        names = [field.strip() for field in fields]
        places |= {name: i for i, name in enumerate(names) if names.count(name) == 1}
    keys: dict[str, _Key] = {
        role: list(map(places.get, key)) if isinstance(key, list) else places[key]
        for role, key in find_columns(where, columns, places, optional, hint).items()
    }
    for where, values in records if header else itertools.chain([first], records):
        if len(values) == count:
            yield where, row_of(values, keys)
        else:
            expected = f"{count} fields with {delimiter!r} between them, as the first line"
            reject(InputError(f"{where}: should have {expected}. Received: {len(values)}"))


_Records = Iterator[tuple[Place, list[str]]]  # of the first line of each, fields


def _plain(lines: Iterator[tuple[Place, str]], delimiter: str) -> _Records:
    # Not by the module csv, for which a carriage return within a text ends a row.
    for where, line in lines:
        if line:
            yield where, line.split(delimiter)


def _quoted(path: str, lines: Iterator[tuple[Place, str]], delimiter: str) -> _Records:
    csv.field_size_limit(2**31 - 1)  # a document may be longer than the default of 131,072
    reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
    number = 1  # where the record begins: one with line breaks inside of quotes ends later
    try:
        for fields in reader:
            if fields:
                yield Place(path, number), fields
            number = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{Place(path, number)}: not a row of quoted fields ({error})") from error


def read_jsonl(
    path: str, columns: Mapping[str, Column], *, optional: Collection[str] = ()
) -> Iterator[Row]:
    """Yields the rows of a file with one JSON object per line; arguments as `read_table`'s."""
    for where, line in read_lines(path):
        if line.strip():
            record = parse_object(line, where)
            yield where, row_of(record, find_columns(where, columns, record, optional))


def read_frame(
    table: Table, columns: Mapping[str, Column], *, optional: Collection[str] = ()
) -> Iterator[Row]:
    """Yields the rows of a DataFrame; what is missing (None, NaN) is None. See `read_table`."""
    known = [name for name in table.frame.columns if list(table.frame.columns).count(name) == 1]
    keys = find_columns(table.name, columns, known, optional)
    names = names_in(keys.values())
    for number, *values in zip(table.frame.index, *(table.frame[name] for name in names)):
        where = Place(table.name, number, "row")
        record = {name: _value(where, value) for name, value in zip(names, values)}
        yield where, row_of(record, keys)


def _value(where: Place, value: Any) -> Any:
    """A cell as JSON would have it."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_value(where, item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not is_unicode(value):
        raise InputError(f"{where}: the text contains an unpaired surrogate. Received: {value!a}")
    return None if type(value).__name__ in ("NAType", "NaTType") or value != value else value

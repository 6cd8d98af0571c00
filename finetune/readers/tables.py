"""Readers of TSV, CSV and JSON-lines files and DataFrames: rows {role: value}."""

from __future__ import annotations

import collections
import csv
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from convbert.common.errors import InputError
from convbert.common.files import is_unicode
from convbert.common.settings import did_you_mean
from convbert.finetune.readers.lines import Place, parse_object, read_lines

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[str | Place, dict[str, Any]]  # place, and values by role
# A column's name, its number from 0, or alternatives: the last ones that are names, if each is of
# another column and the table has all, else the first one that no role before has.
Column = str | int | tuple[str | int, ...]


class Table(NamedTuple):
    """A DataFrame as a source of rows; errors locate rows by `name` and index."""

    name: str
    frame: pd.DataFrame


def find_columns(
    where: str | Place,
    columns: Mapping[str, Column],
    known: Collection,
    optional: Collection[str] = (),
    hint: str = "",
) -> dict[str, Any]:
    """Returns role -> key among the `known` ones, without missing `optional` roles."""
    found: dict[str, Any] = {}
    choices = {role: of if isinstance(of, tuple) else (of,) for role, of in columns.items()}
    last = [names[-1] for role, names in choices.items() if role not in optional]
    last = [name for name in last if isinstance(name, str)]
    has_last = {*last} <= {*known} and len({*last}) == len(last)
    for role, names in choices.items():
        taken = found.values() if len(names) > 1 else ()
        ordered = names[:: -1 if has_last and isinstance(names[-1], str) else 1]
        key = next((name for name in ordered if name in known and name not in taken), None)
        if key is not None:
            found[role] = key
        elif role not in optional:
            said = " or ".join(map(repr, names))
            received = [name for name in known if isinstance(name, str)] or list(known)
            raise InputError(
                f"{where}: there should be one column {said} for `{role}`{hint}. Received:"
                f" {received!r:.300}.{did_you_mean(str(names[0]), map(str, known))}"
            )
    return found


def row_of(record: Any, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns role -> value of a record."""
    return {role: record[key] for role, key in keys.items()}


def read_table(
    path: str,
    quoted: bool,
    columns: Mapping[str, Column],
    *,
    header: bool = True,
    optional: Collection[str] = (),
    source: Iterable[bytes] | None = None,
    lenient: bool = False,
) -> Iterator[Row]:
    """Yields the rows of a TSV or CSV file; skips blank lines.

    If `quoted`, values are separated by commas and optionally quoted (RFC 4180); else by tabs, and
    quotation marks have no meaning (GLUE). If `lenient`, rows with a wrong number of fields are
    skipped, and counted in the log.
    """
    lines = read_lines(path, keep_ends=quoted, source=source)
    # Without the module csv, for which a carriage return within a text ends a row.
    plain = ((where, line.split("\t")) for where, line in lines if line)
    records = _quoted(path, lines) if quoted else plain
    first = next(records, None)
    if first is None:
        return
    where, fields = first
    count, separator = len(fields), "commas" if quoted else "tabs"
    # As some spreadsheets save tables.
    if header and count == 1 < len(columns) and any(mark in fields[0] for mark in ";\t"):
        said = f"should have columns with {separator} between them"
        raise InputError(f"{where}: {said}. Received: {fields[0]!a:.60}")
    places: dict[Any, int] = {number: number % count for number in range(-count, count)}
    if header:
        names = [field.strip() for field in fields]
        times = collections.Counter(names)
        places |= {name: i for i, name in enumerate(names) if times[name] == 1}
    found = find_columns(where, columns, places, optional, f", with {separator} between columns")
    keys = {role: places[key] for role, key in found.items()}
    skipped: list[Place] = []
    for where, values in records if header else itertools.chain([first], records):
        if len(values) == count:
            yield where, row_of(values, keys)
        elif lenient:
            skipped.append(where)
        else:
            raise InputError(
                f"{where}: should have {count} fields with {separator} between them, as in the"
                f" first line. Received: {len(values)}"
            )
    if skipped:
        said = f"{len(skipped)} rows without {count} fields were skipped"
        logging.warning("%s, the first: %s", said, skipped[0])


_Records = Iterator[tuple[Place, list[str]]]  # place of its first line, fields


def _quoted(path: str, lines: Iterator[tuple[Place, str]]) -> _Records:
    csv.field_size_limit(2**31 - 1)  # a document may be longer than the default of 131,072
    reader = csv.reader((line for _, line in lines), strict=True)
    number = 1  # the record's first line; quoted line breaks extend it
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
    """Yields the rows of a file with one JSON object per line; see `read_table`."""
    for where, line in read_lines(path):
        if line.strip():
            record = parse_object(line, where)
            yield where, row_of(record, find_columns(where, columns, record, optional))


def read_frame(
    table: Table, columns: Mapping[str, Column], *, optional: Collection[str] = ()
) -> Iterator[Row]:
    """Yields the rows of a DataFrame, with None for None and NaN; see `read_table`."""
    known = [name for name in table.frame.columns if list(table.frame.columns).count(name) == 1]
    keys = find_columns(table.name, columns, known, optional)
    columns_of_roles = (table.frame[key] for key in keys.values())
    for number, *values in zip(table.frame.index, *columns_of_roles):
        where = Place(table.name, number, "row")
        yield where, {role: _value(where, value) for role, value in zip(keys, values)}


def _value(where: Place, value: Any) -> Any:
    """Converts a cell to a JSON value."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_value(where, item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not is_unicode(value):
        raise InputError(f"{where}: the text contains an unpaired surrogate. Received: {value!a}")
    return None if type(value).__name__ in ("NAType", "NaTType") or value != value else value

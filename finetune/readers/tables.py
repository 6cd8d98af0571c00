"""Rows of TSV, CSV and JSON-lines files, as {role: value} of the columns that a task names."""

from __future__ import annotations

import csv
import functools
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from errors import InputError, warn
from finetune.readers.lines import read_lines
from settings import did_you_mean

Row = tuple[str, dict[str, Any]]  # where it stands ("path, line 3"), and its values by role
# A column's name, its number from 0, or names of which the first that is there counts.
Column = str | int | tuple[str, ...]
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons"}
# The messages of the module csv that speak of its own interface.
_QUOTING = {
    "unexpected end of data": "a quotation mark that is never closed",
    "new-line character seen in unquoted field": "a carriage return outside of quotation marks",
}


def spread(columns: Mapping[str, Any]) -> dict[str, Column]:
    """Columns of which a role may have a list: each item under a role of its own, "role[0]".

    A list is of columns that are all there; a tuple is of names for one column, see `Column`.
    """
    found: dict[str, Column] = {}
    for role, column in columns.items():
        is_list = isinstance(column, list)
        found |= (
            {f"{role}[{i}]": own for i, own in enumerate(column)} if is_list else {role: column}
        )
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
        delimiter: the character between columns. None: a tab, or a comma with `quoted`; see
            `_detect`.

    Raises:
        InputError: a missing column, a wrong number of fields, broken quoting.
    """
    lines = read_lines(path, keep_ends=quoted, source=source)
    if quoted and header and not delimiter:
        delimiter, lines = _detect(path, lines, columns, optional)
    delimiter = delimiter or ("," if quoted else "\t")
    records = (_csv_records if quoted else _tsv_records)(path, lines, delimiter)
    first = next(records, None)
    if first is None:
        return
    places = _places(f"{path}, line {first[0]}", columns, first[2], header, optional, delimiter)
    width, skipped = len(first[2]), []
    for number, last, fields in records if header else itertools.chain([first], records):
        where = f"{path}, line {number}"
        if len(fields) == width:
            yield where, {role: fields[place] for role, place in places.items()}
        elif lenient:
            skipped.append(number)
        else:
            reject(
                InputError(
                    f"{where}: should have {width} fields, as the first line has. "
                    f"Received: {len(fields)}{_hint(fields, delimiter, number, last)}"
                )
            )
    if skipped:
        logging.warning(
            "%s: %d rows without the %d fields of the first line were skipped (the first: line %d)",
            path, len(skipped), width, skipped[0],
        )  # fmt: skip


# Yield (number of the first line, of the last line, fields).
_Records = Iterator[tuple[int, int, list[str]]]


def _tsv_records(path: str, lines: Iterator[tuple[int, str]], delimiter: str) -> _Records:
    for number, line in lines:
        if line:
            yield number, number, line.split(delimiter)


def _csv_records(path: str, lines: Iterator[tuple[int, str]], delimiter: str) -> _Records:
    csv.field_size_limit(2**31 - 1)  # a document may be longer than the default of 131,072
    reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
    number = 1  # where the record begins: one with line breaks inside of quotes ends later
    try:
        for fields in reader:
            if fields:
                yield number, reader.line_num, fields
            number = reader.line_num + 1
    except csv.Error as error:
        reason = str(error)
        reason = next((ours for csvs, ours in _QUOTING.items() if reason.startswith(csvs)), reason)
        raise InputError(
            f"{path}, line {number}: the row that begins here should be separated by "
            f"{_called(delimiter)}, with fields that hold one, a line break or a quotation mark in "
            f'"..." and such a mark doubled. Received: {reason}'
        ) from error


def _called(delimiter: str) -> str:
    return _SEPARATORS.get(delimiter, repr(delimiter))


def _detect(
    path: str,
    lines: Iterator[tuple[int, str]],
    columns: Mapping[str, Column],
    optional: Collection[str],
) -> tuple[str, Iterator[tuple[int, str]]]:
    """What separates the columns of a quoted table, and all its lines.

    A comma; but semicolons or tabs, with a warning, where the first line that is not blank has the
    names only between those.
    """
    head = list(itertools.islice(lines, 1))
    while head and not head[-1][1].strip():
        following = next(lines, None)
        if following is None:
            break
        head.append(following)
    line = head[-1][1] if head else ""
    roles = [role for role, column in columns.items() if not isinstance(column, int)]
    roles = [role for role in roles if role not in optional] or roles
    for delimiter in _SEPARATORS if roles else ():
        names = _header_names(line, delimiter)
        if all(any(name in names for name in _names(columns[role])) for role in roles):
            if delimiter != ",":
                _say_once(path, delimiter)
            return delimiter, itertools.chain(head, lines)
    return ",", itertools.chain(head, lines)


@functools.cache
def _say_once(path: str, delimiter: str) -> None:
    """A training split is read twice where its labels are collected."""
    warn(
        f"{path}: read as separated by {_called(delimiter)}, as its first line is; "
        f'"delimiter": {json.dumps(delimiter)} in a task\'s declaration says so'
    )


def _header_names(line: str, delimiter: str) -> list[str]:
    try:
        rows = list(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return []
    return [name.strip() for name in rows[0]] if rows else []


def _names(column: Column) -> tuple[str | int, ...]:
    return column if isinstance(column, tuple) else (column,)


def _hint(fields: list[str], delimiter: str, first: int, last: int) -> str:
    if len(fields) == 1:
        return f" (is the file separated by {_called(delimiter)}?)"
    if last > first:
        return f" (the row extends to line {last}: is a quotation mark not closed?)"
    return ""


def _places(
    where: str,
    columns: Mapping[str, Column],
    fields: list[str],
    header: bool,
    optional: Collection[str],
    delimiter: str,
) -> dict[str, int]:
    """Role -> position in a row, from the first row of the table."""
    names = [field.strip() for field in fields]
    places: dict[str, int] = {}
    for role, column in columns.items():
        found: list[int] = []
        if isinstance(column, int):
            found = [column % len(fields)] if -len(fields) <= column < len(fields) else []
        elif not header:
            raise InputError(
                f"{where}: a table without a header needs the number of the column of `{role}`, "
                f"counted from 0. Received: {_either(column)}"
            )
        for own in () if isinstance(column, int) else _names(column):
            found = found or [place for place, name in enumerate(names) if name == own]
        if len(found) == 1:
            places[role] = found[0]
        elif found or role not in optional:
            hint = f" ({len(found)} of that name)" if found else _separator_hint(fields, delimiter)
            if header and len(names) > 1 and not found:
                hint = f".{_nearest(column, names)}"
            raise InputError(
                f"{where}: there should be one column {_either(column)} for `{role}`. "
                f"Received: {_listed(names) if header else f'{len(fields)} columns'}{hint}"
            )
    own = [place for role, place in places.items() if role.partition("[")[0] == "label"]
    shared = [place for place in own if [*places.values()].count(place) > 1]
    if shared:
        raise InputError(
            f"{where}: the label should have a column of its own. Received: column {shared[0]} for"
            f" {' and '.join(role for role, place in places.items() if place == shared[0])}"
        )
    return places


def _either(column: Column) -> str:
    return " or ".join(map(repr, _names(column)))


def _listed(names: Collection[str]) -> str:
    """Names for an error message, which is one line and not too long."""
    text = ", ".join(names)
    text = text if text.isprintable() else ", ".join(map(repr, names))
    return text if len(text) <= 300 else f"{text[:300]} ..."


def _separator_hint(fields: list[str], delimiter: str) -> str:
    """What may separate the columns, where one column is all there is."""
    if len(fields) > 1:
        return ""
    others = [called for mark, called in _SEPARATORS.items() if mark in fields[0]]
    if others:
        return f" (is it separated by {others[0]}? say so with `delimiter`)"
    return f" (if the file is not separated by {_called(delimiter)}, say so with `delimiter`)"


def _nearest(column: Column, names: Collection[str]) -> str:
    hints = (did_you_mean(str(own), names) for own in _names(column))
    return next(filter(None, hints), "")


def read_jsonl(
    path: str,
    columns: Mapping[str, Column],
    *,
    optional: Collection[str] = (),
    source: Iterable[bytes] | None = None,
) -> Iterator[Row]:
    """Yields the rows of a file with one JSON object per line; arguments as `read_table`'s.

    Raises:
        InputError: a line that is not a JSON object, a missing key, half a surrogate pair.
    """
    for number, line in read_lines(path, source=source):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, parse_json_row(where, line, columns, optional)


def parse_json_row(
    where: str, line: str, columns: Mapping[str, Column], optional: Collection[str] = ()
) -> dict[str, Any]:
    """The values, by role, of a line that is a JSON object; arguments as `read_jsonl`'s.

    Raises:
        InputError: it is none, lacks a key, or holds half a surrogate pair; begins with `where`.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # no JSON; a huge number; too many brackets
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at character {error.pos + 1}"
        raise InputError(
            f"{where}: should be one JSON object. Received: {line[:60]!r} ({reason}"
            f"{_json_hint(line)})"
        ) from error
    if not isinstance(record, dict):
        raise InputError(
            f"{where}: should be one JSON object. Received: {line[:60]!r}{_json_hint(line)}"
        )
    row = {}
    for role, key in columns.items():
        own = next((name for name in _names(key) if name in record), None)
        if own is not None:
            row[role] = record[own]
        elif role not in optional:
            raise InputError(
                f"{where}: there should be the key {_either(key)} for `{role}`. "
                f"Received: {_listed(record) or 'no keys'}.{_nearest(key, record)}"
            )
    if "\\u" in line:
        _check_surrogates(where, row)
    return row


def _json_hint(line: str) -> str:
    if line.strip() == "{":
        return "; each object should be on one line"
    return "; objects should not be in an array" if line.lstrip().startswith("[") else ""


def _check_surrogates(where: str, row: dict[str, Any]) -> None:
    """Rejects half of a surrogate pair: JSON can spell it, but it is no character."""
    for role, value in row.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise InputError(
                f"{where}: `{role}` should not hold half a surrogate pair. Received: {half!r}"
            ) from error

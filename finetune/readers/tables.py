"""Rows of TSV, CSV and JSON-lines files, as {role: value} of the columns that a task names."""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from absl import logging

from errors import InputError
from finetune.readers.lines import read_lines

Row = tuple[str, dict[str, Any]]  # where it stands ("path, line 3"), and its values by role


def _raise(error: InputError) -> None:
    raise error


def read_table(
    path: str,
    quoted: bool,
    columns: dict[str, str | int],
    *,
    header: bool = True,
    optional: Collection[str] = (),
    lenient: bool = False,
    source: Iterable[bytes] | None = None,
    refuse: Callable[[InputError], None] = _raise,
) -> Iterator[Row]:
    """Yields the rows of a TSV or CSV file; blank lines are passed over.

    Args:
        path: the file.
        quoted: True for comma-separated values, quoted where needed (RFC 4180); False for
            tab-separated ones in which a quotation mark is a character like any other, as in
            GLUE's files.
        columns: role -> name, or number from 0, of its column.
        header: whether the first line names the columns.
        optional: roles whose column may be missing from the table.
        lenient: whether rows with a wrong number of fields are left out, and counted in the log.
        source: see `read_lines`.
        refuse: is given the error of a row with a wrong number of fields, which is left out if
            this does not raise it.

    Raises:
        InputError: a missing column, a wrong number of fields, broken quoting.
    """
    records = _csv_records(path, source) if quoted else _tsv_records(path, source)
    places, width, skipped = None, 0, []
    for number, fields in records:
        where = f"{path}, line {number}"
        if places is None:
            places = _places(where, columns, fields, header, optional)
            width = len(fields)
            if header:
                continue
        if len(fields) != width:
            if lenient:
                skipped.append(number)
                continue
            refuse(
                InputError(
                    f"{where}: should have {width} fields, as the first line has. "
                    f"Received: {len(fields)}{_hint(fields, quoted)}"
                )
            )
            continue
        yield where, {role: fields[place] for role, place in places.items()}
    if skipped:
        logging.warning(
            "%s: %d rows without the %d fields of the first line were skipped (the first: line %d)",
            path, len(skipped), width, skipped[0],
        )  # fmt: skip


def _tsv_records(path: str, source: Iterable[bytes] | None) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path, source=source):
        if line:
            yield number, line.split("\t")


def _csv_records(path: str, source: Iterable[bytes] | None) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(2**31 - 1)  # a document may be longer than the default of 131,072
    lines = (line for _, line in read_lines(path, keep_ends=True, source=source))
    reader = csv.reader(lines, strict=True)
    number = 1  # where the record begins: one with line breaks inside of quotes ends later
    try:
        for fields in reader:
            if fields:
                yield number, fields
            number = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}, line {number}: the row that begins here should be comma-separated, with "
            f'fields that hold a comma, a line break or a quotation mark in "..." and such a mark '
            f"doubled. Received: {error}"
        ) from error


def _hint(fields: list[str], quoted: bool) -> str:
    if len(fields) == 1:
        return f" (is the file separated by {'commas' if quoted else 'tabs'}?)"
    return ""


def _places(
    where: str,
    columns: dict[str, str | int],
    fields: list[str],
    header: bool,
    optional: Collection[str],
) -> dict[str, int]:
    """Role -> position in a row, from the first row of the table."""
    names = [field.strip() for field in fields]
    places = {}
    for role, column in columns.items():
        if isinstance(column, int):
            found = [column % len(fields)] if -len(fields) <= column < len(fields) else []
        elif header:
            found = [place for place, name in enumerate(names) if name == column]
        else:
            raise InputError(
                f"{where}: a table without a header needs the number of the column of `{role}`, "
                f"counted from 0. Received: {column!r}"
            )
        if len(found) == 1:
            places[role] = found[0]
        elif found or role not in optional:
            raise InputError(
                f"{where}: there should be one column {column!r} for `{role}`"
                f"{_nearest(column, names) if header else ''}. "
                f"Received: {', '.join(names) if header else f'{len(fields)} columns'}"
            )
    return places


def _nearest(name: str | int, names: list[str]) -> str:
    near = difflib.get_close_matches(str(name), names, n=1)
    return f" (did you mean {near[0]!r}?)" if near and near[0] != name else ""


def read_jsonl(
    path: str,
    columns: dict[str, str | int],
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
    where: str, line: str, columns: dict[str, str | int], optional: Collection[str] = ()
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
            f"{where}: should be one JSON object. Received: {line[:60]!r} ({reason})"
        ) from error
    if not isinstance(record, dict):
        raise InputError(f"{where}: should be one JSON object. Received: {line[:60]!r}")
    row = {}
    for role, key in columns.items():
        if key in record:
            row[role] = record[key]
        elif role not in optional:
            raise InputError(
                f"{where}: there should be the key {key!r} for `{role}`"
                f"{_nearest(key, list(record))}. Received: {', '.join(record)}"
            )
    if "\\u" in line:
        _check_surrogates(where, row)
    return row


def _check_surrogates(where: str, row: dict[str, Any]) -> None:
    """Refuses half of a surrogate pair: JSON can spell it, but it is no character."""
    for role, value in row.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise InputError(
                f"{where}: `{role}` should not hold half a surrogate pair. Received: {half!r}"
            ) from error

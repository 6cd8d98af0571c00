"""Reads lines of a text file with their places, for error messages."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from convbert.common import files, storage
from convbert.common.errors import InputError
from convbert.common.files import is_unicode, parse_json
from convbert.data.readers.base import BYTE_ORDER_MARK, reject_other_encodings


class Place(NamedTuple):
    """The place of a row in error messages: "reviews.tsv, line 3"."""

    source: str
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.number}"


def read_lines(
    path: str, *, keep_ends: bool = False, source: Iterable[bytes] | None = None
) -> Iterator[tuple[Place, str]]:
    """Yields (place, line) of a UTF-8 file without its byte order mark.

    Only a line feed ends a line, optionally after a carriage return: official files have other
    line breaks inside of texts. `source` has the lines of an open file; `path` then names it.
    """
    if source is None:
        files.check_regular(path)
    with storage.open(path, "rb") if source is None else contextlib.nullcontext(source) as lines:
        for number, line in enumerate(lines, 1):
            place = Place(path, number)
            if number == 1 and source is None:
                reject_other_encodings(line, path)
                if b"\0" in line:
                    raise InputError(f"{place}: the file should be a text. Received: NUL bytes")
            try:
                text = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).decode()
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{place}: the file should be UTF-8. Received: byte"
                    f" {line[error.start]:#04x} at {error.start + 1} ({error.reason})"
                ) from error
            yield place, text if keep_ends else text.removesuffix("\n").removesuffix("\r")


def read_object(path: str) -> dict[str, Any]:
    """Reads a file's JSON object."""
    return parse_object("".join(line for _, line in read_lines(path, keep_ends=True)), path)


def parse_object(text: str, where: str | Place) -> dict[str, Any]:
    """Parses a JSON object; an InputError, also for unpaired surrogates, names `where`."""
    value = parse_json(text, where)
    if "\\u" in text and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise InputError(f"{where}: the text contains an unpaired surrogate (invalid Unicode)")
    return value

"""The lines of a text file, with their numbers, for readers whose errors name them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import storage
from data.encodings import BYTE_ORDER_MARK, marked_encoding
from errors import InputError
from files import is_unicode, parse_json


def read_lines(
    path: str, *, keep_ends: bool = False, source: Iterable[bytes] | None = None
) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line) of a UTF-8 file; a byte order mark is dropped.

    A file that begins with the byte order mark of UTF-16 or UTF-32 is read as such.

    Only a line feed ends a line (with a carriage return before it or not): the official files
    hold carriage returns and Unicode's line separators inside of texts.

    Args:
        path: the file.
        keep_ends: whether lines keep what ends them.
        source: its lines in UTF-8, where it is open already; `path` then only names it in errors.

    Raises:
        InputError: the file is not a text, or a line is not UTF-8.
        OSError: it cannot be read.
    """
    lines = _lines(path) if source is None else source
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        if not keep_ends:
            line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield number, _decoded(line, f"{path}, line {number}")


def read_object(path: str) -> dict[str, Any]:
    """The JSON object that a file holds, in an encoding as of `read_lines`.

    Raises:
        InputError: the file cannot be read, or holds something else; names the line.
    """
    return parse_object("".join(line for _, line in read_lines(path, keep_ends=True)), path)


def parse_object(text: str, where: str) -> dict[str, Any]:
    """The JSON object that a text is; an InputError, also of half a character, names `where`."""
    value = parse_json(text, where)
    if "\\u" in text and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise InputError(f"{where}: the text contains an unpaired surrogate (invalid Unicode)")
    return value


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a file, in UTF-8 or wrongly so."""
    with storage.open(path, "rb") as file:
        encoding = _encoding(path, file.peek(1024))
        yield from _recoded(path, file, encoding) if encoding else file


def _encoding(path: str, head: bytes) -> str | None:
    """UTF-16 or UTF-32 by the byte order mark, None for UTF-8; rejects what is no text."""
    if encoding := marked_encoding(head):
        return encoding
    if b"\0" in head.partition(b"\n")[0]:
        raise InputError(
            f"{path}, line 1: the file should be text in UTF-8, or in UTF-16 with a byte order "
            f"mark. Received: NUL bytes"
        )
    return None


def _recoded(path: str, file: BinaryIO, encoding: str) -> Iterator[bytes]:
    """The lines of a file of another encoding, in UTF-8."""
    number = 0
    try:
        for line in io.TextIOWrapper(file, encoding, newline="\n"):
            yield line.encode()
            number += 1
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}, line {number + 1}: the file should be {encoding}, whose byte order mark it"
            f" has ({error.reason})"
        ) from error


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: the file should be UTF-8. "
            f"Received: {line[error.start : error.start + 1]!r} at byte {error.start + 1}"
        ) from error

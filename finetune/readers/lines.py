"""The lines of a text file, with their places, for readers whose errors name them."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import storage
from data.encodings import BYTE_ORDER_MARK, marked_encoding
from errors import InputError
from files import is_unicode, parse_json


class Place(NamedTuple):
    """Where a row is, as errors name it: "reviews.tsv, line 3"."""

    source: str
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.number}"


def read_lines(
    path: str, *, keep_ends: bool = False, source: Iterable[bytes] | None = None
) -> Iterator[tuple[Place, str]]:
    """Yields (place, line) of a UTF-8 file; a byte order mark is dropped.

    A file that begins with the byte order mark of UTF-16 or UTF-32 is read as such.

    Only a line feed ends a line (with a carriage return before it or not): the official files
    hold carriage returns and Unicode's line separators inside of texts.

    Args:
        path: the file.
        keep_ends: whether lines keep what ends them.
        source: its lines in UTF-8, where it is open already; `path` then only names it in errors.

    Raises:
        InputError: the file is not a text in this encoding.
        OSError: it cannot be read.
    """
    number, encoding = 0, "UTF-8"
    with contextlib.ExitStack() as stack:
        if source is None:
            source = stack.enter_context(storage.open(path, "rb"))
            encoding = _encoding(path, source.peek(1024))
        if encoding != "UTF-8":
            source = io.TextIOWrapper(source, encoding, newline="\n")
        try:
            for number, line in enumerate(source, start=1):
                if isinstance(line, bytes):
                    line = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).decode()
                if not keep_ends:
                    line = line.removesuffix("\n").removesuffix("\r")
                yield Place(path, number), line
        except UnicodeDecodeError as error:
            place = Place(path, number + (encoding != "UTF-8"))  # which comes decoded
            raise InputError(
                f"{place}: the file should be {encoding}. Received: byte"
                f" {error.object[error.start]:#04x} at {error.start + 1} ({error.reason})"
            ) from error


def read_object(path: str) -> dict[str, Any]:
    """The JSON object that a file holds, in an encoding as of `read_lines`."""
    return parse_object("".join(line for _, line in read_lines(path, keep_ends=True)), path)


def parse_object(text: str, where: str | Place) -> dict[str, Any]:
    """The JSON object that a text is; an InputError, also of half a character, names `where`."""
    value = parse_json(text, where)
    if "\\u" in text and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise InputError(f"{where}: the text contains an unpaired surrogate (invalid Unicode)")
    return value


def _encoding(path: str, head: bytes) -> str:
    """The encoding by the byte order mark; rejects what is no text."""
    encoding = marked_encoding(head)
    if encoding is None and b"\0" in head.partition(b"\n")[0]:
        raise InputError(
            f"{path}, line 1: the file should be text in UTF-8, or in UTF-16 with a byte order "
            f"mark. Received: NUL bytes"
        )
    return encoding or "UTF-8"

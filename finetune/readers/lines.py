"""The lines of a text file, with their numbers, for readers whose errors name them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from errors import InputError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(
    path: str, *, keep_ends: bool = False, source: Iterable[bytes] | None = None
) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line) of a UTF-8 file; a byte order mark is dropped.

    Only a line feed ends a line (with a carriage return before it or not): the official files
    hold carriage returns and Unicode's line separators inside of texts.

    Args:
        path: the file.
        keep_ends: whether lines keep what ends them.
        source: its lines, where it is open already; `path` then only names it in errors.

    Raises:
        InputError: the file cannot be opened, or a line is not UTF-8.
    """
    try:
        with open(path, "rb") if source is None else contextlib.nullcontext(source) as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(_BYTE_ORDER_MARK)
                if not keep_ends:
                    line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, _decoded(line, f"{path}, line {number}")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: the file should be UTF-8. "
            f"Received: {line[error.start : error.start + 1]!r} at byte {error.start + 1}"
        ) from error

"""The interface of corpus readers, and helpers for decoding bytes to lines of text."""

from __future__ import annotations

import abc
import bz2
import codecs
import collections
import contextlib
import dataclasses
import functools
import gzip
import io
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from convbert.common import storage
from convbert.common.errors import InputError

BYTE_ORDER_MARK = codecs.BOM_UTF8
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # UTF-32 LE as 16
LONGEST_LINE = 1 << 20  # characters
_ESCAPED = re.compile("[\udc80-\udcff]")
# Called with an open file and "rb"; return objects that read and peek as io.BufferedReader.
_OPENERS: dict[str, Callable[..., Any]]
_OPENERS = {".gz": gzip.open, ".tgz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


@dataclasses.dataclass(frozen=True)
class Unit:
    """A part of a corpus that can be read independently."""

    name: str  # the same on all machines
    path: str  # the file to read, or the folder of `members`
    start: int = 0  # first byte, for a range of a file
    end: int = -1  # one past the last; -1: to the end
    members: tuple[str, ...] = ()  # files below `path`, for a group of small ones


@dataclasses.dataclass(frozen=True)
class Document:
    """One text: `lines` are its sentences or paragraphs in order, stripped, not empty."""

    name: str
    lines: list[str]

    @functools.cached_property
    def characters(self) -> int:
        """Of all lines."""
        return sum(map(len, self.lines))


class Corpus(abc.ABC):
    """A picklable, ordered list of units, and the method to read one."""

    range_bytes = 16 << 20  # size of units that are ranges of a file

    def __init__(self, path: str) -> None:
        self.path = path
        self.units: tuple[Unit, ...] = tuple(self._find_units())

    def _find_units(self) -> Iterator[Unit]:
        """Lists the units without reading text: by default, files, and ranges of large files."""
        for name, path in list_files(self.path):
            yield from byte_ranges(name, path, self.range_bytes)

    @abc.abstractmethod
    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the documents of one unit in a fixed order.

        Counts problems in `problems` under a plural name: "undecodable_bytes", "empty_documents",
        "title_only_documents", ... InputError if a file is unreadable.
        """


def decode(raw: bytes, problems: collections.Counter) -> str:
    """Decodes UTF-8 and strips whitespace; undecodable bytes become U+FFFD and are counted."""
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        # One unpaired surrogate for each undecodable byte.
        escaped = raw.decode("utf-8", errors="surrogateescape")
        problems["undecodable_bytes"] += len(_ESCAPED.findall(escaped))
        return raw.decode("utf-8", errors="replace").strip()


def nonempty_lines(text: str) -> list[str]:
    """Returns the non-blank lines of a text, stripped; splits very long ones."""
    lines = []
    for line in map(str.strip, text.split("\n")):
        while len(line) > LONGEST_LINE:
            cut = line.rfind(" ", 0, LONGEST_LINE) + 1 or LONGEST_LINE
            lines.append(line[:cut].rstrip())
            line = line[cut:].lstrip()
        if line:
            lines.append(line)
    return lines


def list_files(path: str) -> list[tuple[str, str]]:
    """Returns (name, path) of a file, or of all files below a folder, sorted by name.

    Names are relative to the folder, with forward slashes. Skips hidden and empty files;
    InputError if there are no others.
    """
    found = [(os.path.basename(path), path)] if storage.isfile(path) else []
    for folder, subfolders, files in storage.walk(path) if storage.isdir(path) else ():
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in files:
            if not name.startswith("."):
                full = os.path.join(folder, name)
                found.append((os.path.relpath(full, path).replace(os.sep, "/"), full))
    found = sorted(pair for pair in found if storage.getsize(pair[1]) > 0)
    if not found:
        raise InputError(
            f"The corpus must hold at least one file that is not empty. Received: {path!r}"
        )
    return found


def reject_other_encodings(head: bytes, where: str) -> None:
    """Raises InputError if a file begins with the byte order mark of UTF-16 or UTF-32."""
    if head.startswith(_OTHER_MARKS):
        raise InputError(f"{where} must be UTF-8 text. Received: UTF-16 or UTF-32")


@contextlib.contextmanager
def readable_file(path: str) -> Iterator[io.BufferedReader]:
    """Opens a file for reading bytes, decompressing by name and skipping a UTF-8 mark.

    InputError, also inside the `with` block, if the file is unreadable, begins as UTF-16 or
    UTF-32, or has corrupt or truncated compressed data.
    """
    try:
        opener = _OPENERS.get(os.path.splitext(path)[1])
        with storage.open(path, "rb") as file, opener(file, "rb") if opener else file as content:
            head = content.peek(4)
            reject_other_encodings(head, path)
            if head.startswith(BYTE_ORDER_MARK):
                content.read(len(BYTE_ORDER_MARK))
            yield content
    except (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError) as error:
        raise InputError(
            f"{path} must be readable; it may be corrupt or cut short: {error}"
        ) from error


def encodable(text: str) -> str:
    """Replaces unpaired surrogates (from JSON or Python escapes), which UTF-8 cannot encode."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def raw_lines(file: BinaryIO, start: int = 0, end: int = -1) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, bytes) of each line that begins in bytes [start, end), or from `start` on."""
    if start > 0:
        # The line with byte start - 1 belongs to the range before; if that byte is its line
        # break, this reads one byte and the next line begins exactly at `start`.
        file.seek(start - 1)
        file.readline()
    position = file.tell()
    for raw in file:
        if 0 <= end <= position:
            return
        yield position, raw
        position += len(raw)


def byte_ranges(name: str, path: str, range_bytes: int) -> Iterator[Unit]:
    """Splits a large uncompressed file into units of about `range_bytes`; others are one unit."""
    size = storage.getsize(path)
    if os.path.splitext(path)[1] in _OPENERS or size <= range_bytes:
        yield Unit(name, path)
        return
    for start in range(0, size, range_bytes):
        yield Unit(f"{name}@{start}", path, start, min(start + range_bytes, size))

"""What every corpus reader offers, and how bytes become lines of text."""

from __future__ import annotations

import abc
import bz2
import collections
import contextlib
import dataclasses
import gzip
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import storage
from data.encodings import BYTE_ORDER_MARK, reject_other_encodings
from errors import InputError

JUDGED_BYTES = 64_000
LONGEST_LINE = 1 << 20  # characters
_ESCAPED = re.compile("[\udc80-\udcff]")
_OPENERS = {".gz": gzip.open, ".tgz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


@dataclasses.dataclass(frozen=True)
class Unit:
    """A piece of a corpus that one process can read without the others.

    Attributes:
        name: stable identifier, the same on every machine that holds the same corpus.
        path: the file or folder to read.
        start: first byte (or first part, where a reader counts parts) of a unit that is a range.
        end: one past the last; -1 means to the end.
        members: files below `path`, where a unit is a group of small files.
    """

    name: str
    path: str
    start: int = 0
    end: int = -1
    members: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Document:
    """One text: `lines` are its sentences or paragraphs in order, stripped, none empty."""

    name: str
    lines: list[str]


class Corpus(abc.ABC):
    """A picklable list of units and the way to read one.

    Attributes:
        path: what the user gave.
        units: the pieces, in an order that depends on the corpus alone.
        max_undecodable_share: see `decode`.
    """

    range_bytes = 16 << 20  # of a file's units, where it is cut into several

    def __init__(self, path: str, *, max_undecodable_share: float = 0.1) -> None:
        self.path = path
        self.max_undecodable_share = max_undecodable_share
        self.units: tuple[Unit, ...] = tuple(self._find_units())

    def _find_units(self) -> Iterator[Unit]:
        """Lists the units without reading the text: here, the files and ranges of large ones."""
        for name, path in list_files(self.path):
            yield from byte_ranges(name, path, self.range_bytes)

    @abc.abstractmethod
    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the documents of one unit in a fixed order.

        Args:
            unit: one of `self.units`.
            problems: what went wrong is added here under a plural name: "undecodable_bytes",
                "empty_documents", "title_only_documents", ...

        Raises:
            InputError: the file is unreadable, corrupt or hardly UTF-8, see `decode`.
        """

    def decode(self, raw: bytes, where: str, offset: int, problems: collections.Counter) -> str:
        """Decodes UTF-8 and strips whitespace; other bytes become U+FFFD.

        Args:
            raw: the bytes of a line, or of several.
            where: the file, for the message.
            offset: position of `raw` in the file (after decompression), for the message.
            problems: receives the number of replaced bytes as "undecodable_bytes".

        Raises:
            InputError: there are more such bytes per character than `max_undecodable_share` in a
                text of `JUDGED_BYTES` (lines are not judged one by one), or any if that is 0.
        """
        try:
            return raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            # surrogateescape makes one lone surrogate of each undecodable byte, to be counted.
            escaped = raw.decode("utf-8", errors="surrogateescape")
            replaced, share = len(_ESCAPED.findall(escaped)), self.max_undecodable_share
            if replaced > share * len(escaped) and (len(raw) >= JUDGED_BYTES or not share):
                raise InputError(
                    f"{where} must be UTF-8 text with at most {share:g} other bytes per character"
                    f" (--max_undecodable_share). Received: {replaced:,} in {len(escaped):,}"
                    f" characters, the first is byte {offset + error.start}"
                ) from error
            problems["undecodable_bytes"] += replaced
            return raw.decode("utf-8", errors="replace").strip()


def nonempty_lines(text: str) -> list[str]:
    """The lines of a text that are not blank, stripped; very long ones in several parts."""
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
    """Lists a file, or all files below a folder, as (name, path) sorted by name.

    Names are relative to the folder with forward slashes. Hidden and empty files are left out.

    Raises:
        InputError: nothing is there, or no file with content.
    """
    if storage.isfile(path):
        found = [(os.path.basename(path), path)]
    elif storage.isdir(path):
        found = []
        for folder, subfolders, files in storage.walk(path):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            for name in files:
                if not name.startswith("."):
                    full = os.path.join(folder, name)
                    found.append((os.path.relpath(full, path).replace(os.sep, "/"), full))
    else:
        found = []
    found = sorted(pair for pair in found if storage.getsize(pair[1]) > 0)
    if not found:
        raise InputError(
            f"The corpus must hold at least one file that is not empty. Received: {path!r}"
        )
    return found


def is_compressed(path: str) -> bool:
    """Whether the file's name ends as one of the compressed kinds: .gz, .xz, .bz2."""
    return os.path.splitext(path)[1] in _OPENERS


def decompressed(file: BinaryIO, name: str) -> BinaryIO:
    """Wraps an open file so that reading it decompresses, where `name` says it is compressed."""
    opener = _OPENERS.get(os.path.splitext(name)[1])
    return opener(file, "rb") if opener else file


@contextlib.contextmanager
def readable_file(path: str) -> Iterator[BinaryIO]:
    """Opens a file for reading bytes, decompressed where its name says so, behind a UTF-8 mark.

    Raises:
        InputError: the file is unreadable, begins as UTF-16 or UTF-32 does, or its compressed data
            is corrupt or cut short. This covers what happens inside the `with` block.
    """
    try:
        with storage.open(path, "rb") as file, decompressed(file, path) as content:
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
    """Replaces lone surrogates, which escapes in JSON and Python can make and UTF-8 cannot hold."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def raw_lines(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, bytes) of each line that begins at or after byte `start`."""
    if start > 0:
        # The line that holds byte start - 1 belongs to the range before; when that byte is its
        # line break, this reads one byte and the next line begins exactly at `start`.
        file.seek(start - 1)
        file.readline()
    position = file.tell()
    for raw in file:
        yield position, raw
        position += len(raw)


def last_cut(raw: bytes) -> int:
    """The last place to cut a text: behind a blank line, else a line, a word or a character."""
    for end in (rb"\n\s*\n", rb"\n", rb"\s"):
        if found := re.match(rb".*" + end, raw, re.DOTALL):
            return found.end()
    last = range(len(raw) - 1, max(0, len(raw) - 4), -1)
    return next((i for i in last if raw[i] & 0xC0 != 0x80), len(raw))


def blocks(file: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, bytes) of blocks of at most `size` bytes, see `last_cut`."""
    position, rest = file.tell(), b""
    while raw := rest + file.read(size - len(rest)):
        cut = last_cut(raw) if len(raw) == size else len(raw)
        yield position, raw[:cut]
        position, rest = position + cut, raw[cut:]


def byte_ranges(name: str, path: str, range_bytes: int) -> Iterator[Unit]:
    """Cuts a large uncompressed file into units of about `range_bytes`; others are one unit."""
    size = storage.getsize(path)
    if is_compressed(path) or size <= range_bytes:
        yield Unit(name, path)
        return
    for start in range(0, size, range_bytes):
        yield Unit(f"{name}@{start}", path, start, min(start + range_bytes, size))


def member_paths(unit: Unit) -> Iterator[tuple[str, str]]:
    """Yields (name, path) of each file of a unit that groups several."""
    for member in unit.members:
        yield member, unit.path if storage.isfile(unit.path) else os.path.join(unit.path, member)

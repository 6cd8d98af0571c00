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
        strict: whether bytes that are not UTF-8 are rejected instead of replaced and counted.
    """

    range_bytes = 16 << 20  # of a file's units, where it is cut into several

    def __init__(self, path: str, *, strict: bool = False) -> None:
        self.path = path
        self.strict = strict
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
            InputError: the file is unreadable or corrupt or, when strict, not UTF-8.
        """

    def decode(self, raw: bytes, where: str, offset: int, problems: collections.Counter) -> str:
        """Decodes UTF-8 and strips whitespace; counts "undecodable_bytes" or, when strict, rejects.

        Args:
            raw: the bytes of a line, or of several.
            where: the file, for the message.
            offset: position of `raw` in the file (after decompression), for the message.
            problems: receives the number of bytes replaced by U+FFFD.

        Raises:
            InputError: when strict, at the first byte that is not UTF-8.
        """
        try:
            return raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            if self.strict:
                raise InputError(
                    f"{where} must be UTF-8 text, but byte {offset + error.start} is not. "
                    f"Received: {raw[error.start : error.start + 4]!r}"
                ) from error
            # surrogateescape makes one lone surrogate of each undecodable byte, to be counted.
            escaped = raw.decode("utf-8", errors="surrogateescape")
            problems["undecodable_bytes"] += sum("\udc80" <= c <= "\udcff" for c in escaped)
            return raw.decode("utf-8", errors="replace").strip()

    def decode_lines(
        self, raw: bytes, where: str, problems: collections.Counter, offset: int = 0
    ) -> list[str]:
        """The non-empty lines, stripped, of bytes of a file from `offset` on; see `decode`."""
        if offset == 0:
            reject_other_encodings(raw, where)
            raw = raw.removeprefix(BYTE_ORDER_MARK)
        return nonempty_lines(self.decode(raw, where, offset, problems))


def nonempty_lines(text: str) -> list[str]:
    """The lines of a text that are not blank, stripped."""
    return [line for line in map(str.strip, text.split("\n")) if line]


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
        raise InputError(
            f"The corpus must be an existing file or folder of files. Received: {path!r}"
        )
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
    """Opens a file for reading bytes, decompressed where its name says so.

    Raises:
        InputError: the file is unreadable, or its compressed data is corrupt or cut short. This
            covers what happens inside the `with` block.
    """
    try:
        with storage.open(path, "rb") as file, decompressed(file, path) as content:
            yield content
    except (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError) as error:
        raise InputError(
            f"{path} must be readable; it may be corrupt or cut short: {error}"
        ) from error


def encodable(text: str) -> str:
    """Replaces lone surrogates, which escapes in JSON and Python can make and UTF-8 cannot hold."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def raw_lines(
    file: BinaryIO, where: str, start: int = 0, longest: int = -1
) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, bytes) of each line that begins at or after byte `start`.

    Args:
        file: to read from.
        where: its name, for messages.
        start: 0, or a position in a file that can be sought in.
        longest: bytes; longer lines come in pieces that end between words where there is white
            space, and pieces of nothing but whitespace do not come. -1: lines of any length.

    Raises:
        InputError: the file begins as UTF-16 or UTF-32 does.
    """
    position = start
    if start > 0:
        # The line that holds byte start - 1 belongs to the range before; when that byte is its
        # line break, this reads one byte and the next line begins exactly at `start`.
        file.seek(start - 1)
        position = start - 1
        while raw := file.readline(longest):
            position += len(raw)
            if raw.endswith(b"\n"):
                break
    yield from lines_from(file, where, position, longest)


def lines_from(
    file: BinaryIO, where: str, position: int, longest: int = -1, in_pieces: bool = False
) -> Iterator[tuple[int, bytes]]:
    """`raw_lines` of a file that stands at `position`; `in_pieces`: inside a line."""
    rest = b""
    while raw := rest + file.readline(longest - len(rest)):
        full = len(raw) == longest
        if position == 0:
            reject_other_encodings(raw, where)
            if raw.startswith(BYTE_ORDER_MARK):
                position, raw = len(BYTE_ORDER_MARK), raw[len(BYTE_ORDER_MARK) :]
        cut = len(raw)
        if full and not raw.endswith(b"\n"):
            cut, in_pieces = _last_cut(raw), True
        piece, rest = raw[:cut], raw[cut:]
        if not in_pieces or piece.strip():
            yield position, piece
        position += cut
        in_pieces = in_pieces and not piece.endswith(b"\n")


def _last_cut(raw: bytes) -> int:
    """The last place between two words, or at least between two characters."""
    cut = max(raw.rfind(b" "), raw.rfind(b"\t"), raw.rfind(b"\n")) + 1
    return cut or _character_start(raw, len(raw) - 1) or len(raw)


def _character_start(raw: bytes, index: int) -> int:
    """The last beginning of a UTF-8 character up to `index`, a place where bytes may be cut."""
    first = max(0, index - 3)
    return next((i for i in range(index, first, -1) if raw[i] & 0xC0 != 0x80), index)


def cut_after(path: str, position: int, longest: int) -> int:
    """The first place from `position` on where a file may be cut, between words where it can be."""
    with storage.open(path, "rb") as file:
        file.seek(position - 1)
        raw = file.read(longest)
    found = re.search(rb"\s", raw)
    if found:
        return position + found.start()
    ends = (i for i in range(1, min(5, len(raw))) if raw[i] & 0xC0 != 0x80)
    return position - 1 + next(ends, len(raw) if len(raw) < 5 else 1)  # the end, or no UTF-8


def blocks(file: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, bytes) of blocks of at most `size` bytes, cut as `raw_lines` cuts lines."""
    position, rest = 0, b""
    while raw := rest + file.read(size - len(rest)):
        cut = _last_cut(raw) if len(raw) == size else len(raw)
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

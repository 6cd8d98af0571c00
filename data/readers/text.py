"""Plain text: blank lines between documents, or one document per file."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import BinaryIO

import storage
from data.readers import base
from data.readers.base import Corpus, Document, Unit

_BLANK_LINE = re.compile(r"\n[ \t\r\f\v]*\n")
_SEARCHED = 1 << 20  # bytes before the end of a range in which a place to cut is looked for


class TextCorpus(Corpus):
    """Text files in which a blank line ends a document, as ELECTRA expects them.

    A large file is read in ranges, and a compressed one in blocks of their size. They end where a
    document does; a document that is too long for that is divided at a line, a word or a character.
    """

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the unit's documents, see the class."""
        with base.readable_file(unit.path) as file:
            if unit.end < 0:
                blocks = base.blocks(file, self.range_bytes)
            else:
                size = storage.getsize(unit.path)
                start, end = (self._cut(file, place, size) for place in (unit.start, unit.end))
                file.seek(start)
                blocks = iter([(start, file.read(end - start))])
            number = 0
            for offset, raw in blocks:
                text = self.decode(raw, unit.path, offset, problems)
                for part in _BLANK_LINE.split(text):
                    if lines := base.nonempty_lines(part):
                        yield Document(f"{unit.name}:{number}", lines)
                        number += 1

    def _cut(self, file: BinaryIO, place: int, size: int) -> int:
        """Where a file is cut that has a border of ranges at `place`: there or before."""
        if place == 0:
            return file.tell()  # behind a byte order mark
        if place == size:
            return size
        first = place - min(_SEARCHED, self.range_bytes)
        file.seek(first)
        return first + base.last_cut(file.read(place - first))


class TextPerFileCorpus(Corpus):
    """A folder of text files, each one document; of large files, each 16 MiB of text.

    A unit has up to `files_per_unit` files and `unit_bytes` bytes, or one larger file.
    """

    files_per_unit = 256
    unit_bytes = 1 << 20
    block_bytes = 16 << 20

    def _find_units(self) -> Iterator[Unit]:
        members: list[str] = []
        total = 0
        for name, path in base.list_files(self.path):
            size = storage.getsize(path)
            if len(members) == self.files_per_unit or (members and total + size > self.unit_bytes):
                yield Unit(members[0], self.path, members=tuple(members))
                members, total = [], 0
            members.append(name)
            total += size
        yield Unit(members[0], self.path, members=tuple(members))

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields one document per file; files without text count as "empty_documents"."""
        for name, path in base.member_paths(unit):
            empty = True
            with base.readable_file(path) as file:
                for offset, raw in base.blocks(file, self.block_bytes):
                    text = self.decode(raw, path, offset, problems)
                    if lines := base.nonempty_lines(text):
                        empty = False
                        yield Document(name, lines)
            if empty:
                problems["empty_documents"] += 1

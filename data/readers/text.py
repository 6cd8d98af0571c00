"""Plain text: blank lines between documents, or one document per file."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator

import storage
from data.readers import base
from data.readers.base import Corpus, Document, Unit

# Longer lines are read in pieces. TextCorpus says what happens to a range that one document fills.
_LONGEST_LINE = 1 << 20


class TextCorpus(Corpus):
    """Text files in which a blank line ends a document, as ELECTRA expects them.

    A range owns the documents whose preceding blank line it holds. Deciding by the blank line, not
    by the document's own first byte, lets a range start reading at its own first byte without
    looking back. The file's first document belongs to the first range.

    No document is read further than the end of the range after its own: a
    range in which no blank line begins takes what follows it, to the next blank line or the end of
    the range after it. Compressed files, which have no ranges, are divided by size.
    """

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the unit's documents, see the class."""
        stop = math.inf  # where a document is cut that continues
        with base.readable_file(unit.path) as file:
            lines = base.raw_lines(file, unit.path, unit.start, _LONGEST_LINE)
            if unit.start > 0 and not self._skip_to_blank(lines, unit.end):
                # Without a blank line: the document before fills the range.
                if unit.end >= storage.getsize(unit.path):
                    return
                start = base.cut_after(unit.path, unit.end, _LONGEST_LINE)
                file.seek(start - 1)
                inside = file.read(1) != b"\n"  # then what is left of the line is no blank one
                lines = base.lines_from(file, unit.path, start, _LONGEST_LINE, inside)
            if unit.end >= 0:
                stop = 2 * unit.end - unit.start
                past = stop >= storage.getsize(unit.path)
                stop = math.inf if past else base.cut_after(unit.path, stop, _LONGEST_LINE)
            yield from self._documents(lines, unit, stop, problems)

    @staticmethod
    def _skip_to_blank(lines: Iterator[tuple[int, bytes]], end: int) -> bool:
        """Reads up to the first blank line; whether there is one before `end`."""
        for offset, raw in lines:
            if offset >= end:
                return False
            if not raw.strip():
                return True
        return False

    def _documents(
        self,
        raw_lines: Iterator[tuple[int, bytes]],
        unit: Unit,
        stop: float,
        problems: collections.Counter,
    ) -> Iterator[Document]:
        """Yields documents up to the first blank line after the unit's end, or to `stop`."""
        lines: list[str] = []
        first = size = 0
        for offset, raw in raw_lines:
            if offset + len(raw) > stop:
                raw = raw[: max(0, int(stop) - offset)]
            if raw.strip():
                first = first if lines else offset
                line = self.decode(raw, unit.path, offset, problems)
                lines += [line] if line else []
                size += len(raw)
                full = unit.end < 0 and size >= self.range_bytes
                if offset + len(raw) < stop and not full:
                    continue
            if lines:
                yield Document(f"{unit.name}:{first}", lines)
                lines, size = [], 0
            if offset + len(raw) >= stop or (not raw.strip() and 0 <= unit.end <= offset):
                return
        if lines:
            yield Document(f"{unit.name}:{first}", lines)


class TextPerFileCorpus(Corpus):
    """A folder of text files, each one document; of large files, each 16 MiB of text."""

    files_per_unit = 256
    block_bytes = 16 << 20

    def _find_units(self) -> Iterator[Unit]:
        files = [name for name, _ in base.list_files(self.path)]
        for start in range(0, len(files), self.files_per_unit):
            members = tuple(files[start : start + self.files_per_unit])
            yield Unit(members[0], self.path, members=members)

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields one document per file; files without text count as "empty_documents"."""
        for name, path in base.member_paths(unit):
            empty = True
            with base.readable_file(path) as file:
                for offset, raw in base.blocks(file, self.block_bytes):
                    if lines := self.decode_lines(raw, path, problems, offset):
                        empty = False
                        yield Document(name, lines)
            if empty:
                problems["empty_documents"] += 1

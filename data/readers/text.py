"""Plain text: blank lines between documents, or one document per file."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from data.readers import base
from data.readers.base import Corpus, Document, Unit


class TextCorpus(Corpus):
    """Text files in which a blank line ends a document, as ELECTRA expects them."""

    range_bytes = 16 << 20

    def _find_units(self) -> Iterator[Unit]:
        for name, path in base.list_files(self.path):
            yield from base.byte_ranges(name, path, self.range_bytes)

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the unit's documents; a range owns those whose preceding blank line it holds.

        Deciding by the blank line, not by the document's own first byte, lets a range start
        reading at its own first byte without looking back. The file's first document belongs to
        the first range.
        """
        lines: list[str] = []
        first = 0
        inside = unit.start == 0
        with base.readable_file(unit.path) as file:
            for offset, raw in base.raw_lines(file, unit.path, unit.start):
                if raw.strip():
                    if inside:
                        first = first if lines else offset
                        line = base.decode_line(
                            raw,
                            where=unit.path,
                            offset=offset,
                            strict=self.strict,
                            problems=problems,
                        )
                        lines += [line] if line else []
                    continue
                if lines:
                    yield Document(f"{unit.name}:{first}", lines)
                    lines = []
                if 0 <= unit.end <= offset:
                    return
                inside = True
        if lines:
            yield Document(f"{unit.name}:{first}", lines)


class TextPerFileCorpus(Corpus):
    """A folder of text files, each one document."""

    files_per_unit = 256

    def _find_units(self) -> Iterator[Unit]:
        files = [name for name, _ in base.list_files(self.path)]
        for start in range(0, len(files), self.files_per_unit):
            members = tuple(files[start : start + self.files_per_unit])
            yield Unit(members[0], self.path, members=members)

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields one document per file; files without text count as "empty_documents"."""
        for name, path in base.member_paths(unit):
            with base.readable_file(path) as file:
                raw = file.read()
            lines = base.text_lines(raw, where=path, strict=self.strict, problems=problems)
            if lines:
                yield Document(name, lines)
            else:
                problems["empty_documents"] += 1

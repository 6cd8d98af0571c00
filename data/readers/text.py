"""Plain text: files of documents or of lines, and archives of files."""

from __future__ import annotations

import collections
import io
import itertools
import os
import re
import tarfile
from collections.abc import Iterator

from convbert.common import storage
from convbert.common.files import LARGEST
from convbert.data.readers import base
from convbert.data.readers.base import Corpus, Document, Unit

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_ARCHIVES = (".tgz", ".xz", ".gz", ".bz2")  # tarfile takes a cut .tar for a whole one
_SEARCHED = 1 << 20  # bytes before the end of a range to search for a place to split


class TextCorpus(Corpus):
    """Text files in which a blank line ends a document, as for ELECTRA.

    Large files are read in ranges, compressed ones in blocks of the same size. These end with a
    document; a document that is too long is split at a line, a word or a character.
    """

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the unit's documents as described above."""
        with base.readable_file(unit.path) as file:
            if unit.end < 0:
                blocks = _blocks(file, self.range_bytes)
            else:
                size = storage.getsize(unit.path)
                start, end = (self._cut(file, place, size) for place in (unit.start, unit.end))
                file.seek(start)
                blocks = iter([file.read(end - start)])
            number = 0
            for raw in blocks:
                for part in _BLANK_LINE.split(base.decode(raw, problems)):
                    if lines := base.nonempty_lines(part):
                        yield Document(f"{unit.name}:{number}", lines)
                        number += 1

    def _cut(self, file: io.BufferedReader, place: int, size: int) -> int:
        """Returns the offset at which to split a file, at or before `place`."""
        if place == 0:
            return file.tell()  # after a byte order mark
        if place == size:
            return size
        first = place - min(_SEARCHED, self.range_bytes)
        file.seek(first)
        return first + _last_cut(file.read(place - first))


class LanguageModelCorpus(Corpus):
    """Files of lines, such as those of PTB and WikiText; blank lines count.

    A document is 100 consecutive lines, as the files do not mark the end of texts.
    """

    lines_per_document = 100

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the lines that begin in the unit, stripped, 100 per document."""
        with base.readable_file(unit.path) as file:
            lines = base.raw_lines(file, unit.start, unit.end)
            while part := list(itertools.islice(lines, self.lines_per_document)):
                texts = [base.decode(raw, problems) for _, raw in part]
                yield Document(f"{unit.name}:{part[0][0]}", texts)


class OpenWebTextCorpus(Corpus):
    """Compressed tar archives of .txt files; each file is a document.

    `path` is the folder of `urlsf_subset*.xz` archives, or one archive. Files are streamed, not
    extracted to disk. Blank lines separate paragraphs, not documents.
    """

    def _find_units(self) -> Iterator[Unit]:
        for name, path in base.list_files(self.path):
            if name.endswith(_ARCHIVES):
                yield Unit(name, path)

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the texts of one archive, in archive order.

        Counts texts without words as "empty_documents", other members as "other_files".
        """
        # "r|" never seeks. `base` decompresses, as tarfile itself would accept a truncated
        # archive.
        with (
            base.readable_file(unit.path) as file,
            tarfile.open(fileobj=file, mode="r|") as archive,
        ):
            for member in archive:
                if not member.isfile() or os.path.basename(member.name).startswith("."):
                    continue
                if not member.name.endswith(".txt") or member.size > LARGEST:
                    problems["other_files"] += 1
                    continue
                content = archive.extractfile(member)
                assert content is not None  # as it is a file
                if lines := base.nonempty_lines(base.decode(content.read(), problems)):
                    yield Document(f"{unit.name}:{member.name}", lines)
                else:
                    problems["empty_documents"] += 1


def _last_cut(raw: bytes) -> int:
    """Returns the last place to split a text: after a blank line, line, word or character."""
    for end in (rb"\n\s*\n", rb"\n", rb"\s"):
        if found := re.match(rb".*" + end, raw, re.DOTALL):
            return found.end()
    last = range(len(raw) - 1, max(0, len(raw) - 4), -1)
    return next((i for i in last if raw[i] & 0xC0 != 0x80), len(raw))


def _blocks(file: io.BufferedReader, size: int) -> Iterator[bytes]:
    """Yields blocks of at most `size` bytes, split by `_last_cut`."""
    rest = b""
    while raw := rest + file.read(size - len(rest)):
        cut = _last_cut(raw) if len(raw) == size else len(raw)
        yield raw[:cut]
        rest = raw[cut:]

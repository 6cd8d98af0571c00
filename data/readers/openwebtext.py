"""OpenWebText as it is distributed: archives of text files, in a folder or in an archive."""

from __future__ import annotations

import collections
import io
import os
import tarfile
from collections.abc import Iterator

from data.readers import base
from data.readers.base import Corpus, Document, Unit

_ARCHIVES = (".tar", ".tgz", ".xz", ".gz", ".bz2")


class OpenWebTextCorpus(Corpus):
    """Tar archives (compressed or not) of .txt files or of further archives; a file is a document.

    `path` is the folder of `urlsf_subset*.xz` archives, which several processes read at once, or
    the one big archive of them, which only one process can read. Everything is streamed; nothing
    is extracted to disk. Blank lines separate paragraphs, not documents.
    """

    def _find_units(self) -> Iterator[Unit]:
        for name, path in base.list_files(self.path):
            if name.endswith(_ARCHIVES):
                yield Unit(name, path)

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the texts of one archive in the archive's order.

        Texts without words count as "empty_documents", members that are neither text nor archive
        as "other_files".
        """
        with base.readable_file(unit.path) as file:
            yield from self._members(file, unit.name, problems)

    def _members(
        self, file: io.BufferedReader, name: str, problems: collections.Counter
    ) -> Iterator[Document]:
        """Yields the texts of an open, decompressed tar stream and of the archives within it."""
        # "r|" never seeks. Decompression is left to `base`: tarfile's own takes a cut-off
        # archive for a complete one.
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                if not member.isfile() or os.path.basename(member.name).startswith("."):
                    continue
                content = archive.extractfile(member)
                assert isinstance(content, io.BufferedReader)  # as it is a file
                if member.name.endswith(".txt"):
                    lines = base.nonempty_lines(base.decode(content.read(), problems))
                    if lines:
                        yield Document(f"{name}:{member.name}", lines)
                    else:
                        problems["empty_documents"] += 1
                elif member.name.endswith(_ARCHIVES):
                    with base.decompressed(content, member.name) as inner:
                        yield from self._members(inner, f"{name}:{member.name}", problems)
                else:
                    problems["other_files"] += 1

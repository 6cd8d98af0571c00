"""OpenWebText as distributed: archives of text files."""

from __future__ import annotations

import collections
import os
import tarfile
from collections.abc import Iterator

from convbert.common.files import LARGEST
from convbert.data.readers import base
from convbert.data.readers.base import Corpus, Document, Unit

_ARCHIVES = (".tgz", ".xz", ".gz", ".bz2")  # tarfile takes a cut .tar for a whole one


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

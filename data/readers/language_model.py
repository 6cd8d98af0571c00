"""Text files of language models, such as those of PTB and WikiText: every line counts."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from data.readers import base
from data.readers.base import Corpus, Document, Unit


class LanguageModelCorpus(Corpus):
    """Files of lines, blank ones included, as every line ends with an `<eos>`.

    A document here is 100 lines that follow each other, as the files do not say where texts end.
    """

    lines_per_document = 100

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the lines that begin in the unit, stripped, by the hundred."""
        lines: list[str] = []
        first = 0
        with base.readable_file(unit.path) as file:
            for offset, raw in base.raw_lines(file, unit.start):
                if 0 <= unit.end <= offset:
                    break
                first = first if lines else offset
                lines.append(self.decode(raw, unit.path, offset, problems))
                if len(lines) == self.lines_per_document:
                    yield Document(f"{unit.name}:{first}", lines)
                    lines = []
        if lines:
            yield Document(f"{unit.name}:{first}", lines)

"""Reader of WikiExtractor's output: articles in <doc ...> ... </doc>, or JSON lines."""

from __future__ import annotations

import collections
import html
import io
import re
from collections.abc import Iterator

from convbert.common.errors import InputError, located
from convbert.common.files import parse_json
from convbert.data.readers import base
from convbert.data.readers.base import Corpus, Document, Unit

_ATTRIBUTE = re.compile(r'(\w+)="(.*?)"(?=\s+\w+="|\s*>)')


class WikiExtractorCorpus(Corpus):
    """WikiExtractor's output, with or without `--json`, optionally compressed.

    Articles that consist of a title only (most of a dump: redirects, lists, templates) are left out
    and counted as "title_only_documents". A first line that repeats the title attribute is dropped:
    it is not a sentence, and the first sentence usually repeats the same words. Blank lines do not
    end an article. Lines outside of articles are left out and counted as "lines_outside_articles".

    WikiExtractor escapes `&`, `<` and `>` (`html.escape` at the end of `clean`, in extract.py of
    attardi/wikiextractor); they are unescaped.
    """

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the articles whose opening line begins in the unit."""
        with base.readable_file(unit.path) as file:
            as_json = file.peek(1).lstrip().startswith(b"{")
            articles = self._json_articles if as_json else self._tagged_articles
            for identifier, title, text in articles(unit, file, problems):
                lines = base.nonempty_lines(html.unescape(text))
                if lines and lines[0] == html.unescape(title).strip():
                    lines = lines[1:]
                if lines:
                    yield Document(f"{unit.name}:{identifier}", lines)
                else:
                    problems["title_only_documents"] += 1

    def _tagged_articles(
        self, unit: Unit, file: io.BufferedReader, problems: collections.Counter
    ) -> Iterator[tuple[str, str, str]]:
        """Yields (id, title, text) of each <doc ...> ... </doc>."""
        lines: list[str] | None = None  # None outside an article
        identifier = title = ""
        begun = unit.start == 0  # later, the end of an article of the unit before may come first
        for offset, raw in base.raw_lines(file, unit.start):
            opens = raw.startswith(b"<doc ")
            if lines is None and 0 <= unit.end <= offset:
                return
            if lines is None and not opens:
                if begun and raw.strip():
                    problems["lines_outside_articles"] += 1
                continue
            begun, line = True, base.decode(raw, problems)
            if opens:
                if lines is not None:
                    raise InputError(
                        f"{unit.path} byte {offset}: an article must end with </doc> before the "
                        f"next begins. Received: {line[:80]!r} inside article {identifier}"
                    )
                attributes = dict(_ATTRIBUTE.findall(line))
                identifier = attributes.get("id", str(offset))
                title = attributes.get("title", "")
                lines = []
            elif lines is not None and line == "</doc>":
                yield identifier, title, "\n".join(lines)
                lines = None
            elif lines is not None:
                lines.append(line)
        if lines is not None:
            raise InputError(
                f"{unit.path} must end with </doc>, it may be cut short. Received: no end of "
                f"article {identifier}"
            )

    def _json_articles(
        self, unit: Unit, file: io.BufferedReader, problems: collections.Counter
    ) -> Iterator[tuple[str, str, str]]:
        """Yields (id, title, text) of each line {"id": ..., "title": ..., "text": ...}."""
        for offset, raw in base.raw_lines(file, unit.start, unit.end):
            line = base.decode(raw, problems)
            if not line:
                continue
            with located(f"{unit.path} byte {offset}"):
                article = parse_json(line, "each line should be a JSON object")
                if not isinstance(text := article.get("text"), str):
                    raise InputError(f"`text` should be a text. Received: {line:.80}")
            title = str(article.get("title", ""))
            yield str(article.get("id", offset)), title, base.encodable(text)

"""Reader of the output of `wikiextractor --json`: an article per line."""

from __future__ import annotations

import collections
import html
import json
from collections.abc import Iterator
from typing import Any

from common.errors import InputError
from data.readers import base
from data.readers.base import Corpus, Document, Unit


class WikiExtractorCorpus(Corpus):
    """Output of `wikiextractor --json`, also compressed.

    Articles that are nothing but their title (most of a dump: redirects, lists, templates) are
    left out and counted as "title_only_documents". The first line is dropped where it repeats the
    title: it is no sentence of the article, and as the first sentence names its subject again it
    would put the same words twice in a row. Blank lines do not end an article.

    WikiExtractor escapes `&`, `<` and `>` (`html.escape` at the end of `clean`, in extract.py of
    attardi/wikiextractor); they are unescaped.
    """

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the articles whose line begins in the unit."""
        with base.readable_file(unit.path) as file:
            for offset, raw in base.raw_lines(file, unit.start, unit.end):
                line = base.decode(raw, problems)
                if not line:
                    continue
                article = _article(line, f"{unit.path} byte {offset}")
                lines = base.nonempty_lines(html.unescape(base.encodable(article["text"])))
                if lines and lines[0] == html.unescape(str(article.get("title", ""))).strip():
                    lines = lines[1:]
                if lines:
                    yield Document(f"{unit.name}:{article.get('id', offset)}", lines)
                else:
                    problems["title_only_documents"] += 1


def _article(line: str, where: str) -> dict[str, Any]:
    try:
        article = json.loads(line)
    except ValueError:
        article = None
    if isinstance(article, dict) and isinstance(article.get("text"), str):
        return article
    raise InputError(
        f'{where}: each line must be a JSON object with a "text", as of `wikiextractor --json`.'
        f" Received: {line[:80]!r}"
    )

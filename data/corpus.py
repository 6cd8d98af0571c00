"""Where raw text comes from: one function opens any corpus, whatever its format.

A corpus is a list of units, each readable by itself, and a unit is a stream of documents. See
`data.readers.base` for the three types; each format has its own file beside that one.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from convbert.common.errors import InputError
from convbert.data.readers.base import Corpus
from convbert.data.readers.documentation import InstalledDocumentation
from convbert.data.readers.openwebtext import OpenWebTextCorpus
from convbert.data.readers.text import LanguageModelCorpus, TextCorpus
from convbert.data.readers.wikiextractor import WikiExtractorCorpus

_READERS: dict[str, Callable[[str], Corpus]] = {
    "text": TextCorpus,
    "wikiextractor": WikiExtractorCorpus,
    "openwebtext": OpenWebTextCorpus,
    "installed_documentation": InstalledDocumentation,
    "language_model": LanguageModelCorpus,
}

CORPUS_FORMATS: tuple[str, ...] = tuple(_READERS)
NAMES = ("installed_documentation",)  # formats whose corpora are names, not paths
MAX_UNDECODABLE_SHARE = 0.1  # bytes that are not UTF-8, for each character


def open_corpus(path: str, corpus_format: str) -> Corpus:
    """Opens a corpus and makes sure that it holds at least one document.

    `path` is a file or folder; for "installed_documentation" names of packages. InputError where
    nothing is there, or no document in it; `Corpus.documents` raises for later faults.
    """
    corpus = _READERS[corpus_format](path)
    found: collections.Counter = collections.Counter()
    for unit in corpus.units:
        for _ in corpus.documents(unit, found):
            return corpus
    raise InputError(
        f"The corpus must hold at least one document in the format {corpus_format!r}. "
        f"Received: {path!r} with {listing(found) or 'nothing'}"
    )


def listing(problems: dict[str, int]) -> str:
    """Formats a reader's counts of problems, such as "3 undecodable bytes"."""
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in sorted(problems.items()))

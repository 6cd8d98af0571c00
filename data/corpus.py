"""Sources of raw text: one function opens a corpus of any format.

A corpus is a list of independently readable units, and a unit is a stream of documents. See
`data.readers.base` for the three types; the formats are next to it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from convbert.common.errors import InputError
from convbert.data.readers.base import Corpus
from convbert.data.readers.documentation import InstalledDocumentation
from convbert.data.readers.text import LanguageModelCorpus, OpenWebTextCorpus, TextCorpus
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
MAX_UNDECODABLE_SHARE = 0.1  # bytes that are not UTF-8, per character


def open_corpus(path: str, corpus_format: str) -> Corpus:
    """Opens a corpus and checks that it has at least one document.

    `path` is a file or folder, or names of packages for "installed_documentation". InputError if it
    does not exist or has no document; `Corpus.documents` raises for later faults.
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
    """Formats a reader's problem counts, such as "3 undecodable bytes"."""
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in sorted(problems.items()))

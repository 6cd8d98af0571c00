"""Sources of raw text: one function opens a corpus of any format.

A corpus is a list of independently readable units, and a unit is a stream of documents. See
`data.readers.base` for the three types; the formats are next to it.
"""

from __future__ import annotations

import collections
import itertools
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
# Bytes that are not UTF-8, per character. German in Latin-1 has 0.017, French 0.035.
MAX_UNDECODABLE_SHARE = 0.005
_FIRST = 1 << 16  # characters in which another encoding is searched for at once


def open_corpus(path: str, corpus_format: str) -> Corpus:
    """Opens a corpus and checks that it has at least one document, and that it begins as UTF-8.

    `path` is a file or folder, or names of packages for "installed_documentation". InputError if it
    does not exist or has no document; `Corpus.documents` raises for later faults.
    """
    corpus = _READERS[corpus_format](path)
    found: collections.Counter = collections.Counter()
    documents = characters = replaced = 0
    first = ""
    units = (corpus.documents(unit, found) for unit in corpus.units)
    for document in itertools.chain.from_iterable(units):
        documents += 1
        first = first or document.lines[0]
        characters += document.characters
        replaced += sum(line.count("\ufffd") for line in document.lines)
        if characters > _FIRST:
            break
    if not documents:
        raise InputError(
            f"The corpus must hold at least one document in the format {corpus_format!r}. "
            f"Received: {path!r} with {listing(found) or 'nothing'}"
        )
    as_json = first.startswith("{") and '"text":' in first
    if corpus_format == "text" and "\0ustar" in first[:300]:  # the header of a tar archive
        expected = "plain text: unpack the archive, or take --corpus_format openwebtext"
        raise InputError(f"the corpus {path} should be {expected}. Received: an archive of files")
    if corpus_format == "text" and (first.startswith("<doc ") or as_json):
        raise InputError(
            f"the corpus {path} should be plain text; --corpus_format wikiextractor reads articles"
            f" in <doc> or JSON lines. Received: {first:.40}"
        )
    if found["undecodable_bytes"] and replaced > MAX_UNDECODABLE_SHARE * characters:
        raise InputError(
            f"the corpus {path} should be UTF-8 text: convert it. Received: {replaced:,} of its"
            f" first {characters:,} characters in another encoding"
        )
    return corpus


def listing(problems: dict[str, int]) -> str:
    """Formats a reader's problem counts, such as "3 undecodable bytes"."""
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in sorted(problems.items()))

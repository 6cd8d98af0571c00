"""Where raw text comes from: one function opens any corpus, whatever its format.

A corpus is a list of units, each readable by itself, and a unit is a stream of documents. See
`data.readers.base` for the three types; each format has its own file beside that one.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from data.manifest import listing
from data.readers.base import Corpus, Document, Unit
from data.readers.documentation import InstalledDocumentation
from data.readers.language_model import LanguageModelCorpus
from data.readers.openwebtext import OpenWebTextCorpus
from data.readers.text import TextCorpus, TextPerFileCorpus
from data.readers.tfds_text import TfdsCorpus, TfdsLanguageModelCorpus
from data.readers.wikiextractor import WikiExtractorCorpus
from errors import InputError

__all__ = ["CORPUS_FORMATS", "Corpus", "Document", "Unit", "open_corpus"]

_READERS: dict[str, Callable[..., Corpus]] = {
    "text": TextCorpus,
    "text_per_file": TextPerFileCorpus,
    "wikiextractor": WikiExtractorCorpus,
    "openwebtext": OpenWebTextCorpus,
    "tfds": TfdsCorpus,
    "installed_documentation": InstalledDocumentation,
    "language_model": LanguageModelCorpus,
    "tfds_language_model": TfdsLanguageModelCorpus,
}

CORPUS_FORMATS: tuple[str, ...] = tuple(_READERS)
NOT_PATHS = ("tfds", "tfds_language_model", "installed_documentation")  # but names


def open_corpus(path: str, corpus_format: str, *, max_undecodable_share: float = 0.1) -> Corpus:
    """Opens a corpus and makes sure that it holds at least one document.

    Args:
        path: a file or folder; for "tfds" and "tfds_language_model"
            NAME[/CONFIG][:VERSION][#FEATURE][@SPLIT]; for "installed_documentation" empty, names
            of packages, or a folder of packages.
        corpus_format: one of `CORPUS_FORMATS`.
        max_undecodable_share: of bytes that are not UTF-8, see `Corpus.decode`.

    Raises:
        InputError: nothing at `path`, or no document in it. The corpus is read up
            to its first document only; later faults are raised by `Corpus.documents`.
    """
    corpus = _READERS[corpus_format](path, max_undecodable_share=max_undecodable_share)
    found: collections.Counter = collections.Counter()
    for unit in corpus.units:
        for _ in corpus.documents(unit, found):
            return corpus
    raise InputError(
        f"The corpus must hold at least one document in the format {corpus_format!r}. "
        f"Received: {path!r} with {listing(found) or 'nothing'}"
    )

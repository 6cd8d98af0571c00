"""A warning about a corpus before it is built: marks that accent stripping would remove."""

from __future__ import annotations

import collections
import itertools
import unicodedata

from data.corpus import Corpus
from errors import warn

_DOCUMENTS, _CHARACTERS = 64, 64 << 10  # looked at, evenly over the corpus
# Less is names and quotations in text of another script.
_NOTICED_SHARE = 0.001
# Blocks of scripts in which combining marks are vowels, their absence, or other letters: Thaana,
# the scripts of India and South-East Asia (Devanagari to Burmese, Khmer, ...), kana's voicing. Not
# those of Hebrew and Arabic, which are mostly written without.
_BLOCKS = (
    (0x0780, 0x07BF),
    (0x0900, 0x109F),
    (0x1700, 0x17FF),
    (0x1900, 0x1CFF),
    (0x3099, 0x309A),
    (0xA800, 0xABFF),
    (0x10A00, 0x10A5F),
    (0x11000, 0x11FFF),
)


def warn_of_stripped_marks(corpus: Corpus) -> None:
    """Warns on stderr where accent stripping removes marks that are no accents."""
    text = ""
    for unit in corpus.units[:: -(-len(corpus.units) // 8)]:
        documents = itertools.islice(corpus.documents(unit, collections.Counter()), _DOCUMENTS)
        text += "\n".join(line for each in documents for line in each.lines)[:_CHARACTERS]
    marks = [c for c in unicodedata.normalize("NFD", text) if _is_needed(c)]
    if len(marks) >= _NOTICED_SHARE * max(1, len(text)):
        warn(
            f"accents are stripped, and with them {len(marks):,} combining marks such as"
            f" {unicodedata.name(marks[0])} in {len(text):,} characters, which are no accents but"
            " vowels, tones or letters: build with --nostrip_accents"
        )


def _is_needed(character: str) -> bool:
    code = ord(character)
    return any(first <= code <= last for first, last in _BLOCKS) and (
        unicodedata.category(character) == "Mn"
    )

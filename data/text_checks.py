"""What is said about a corpus before it is built: marks that accent stripping would remove."""

from __future__ import annotations

import collections
import unicodedata

from data.corpus import Corpus
from errors import warn

_SAMPLED_UNITS = 8
_CHARACTERS_PER_UNIT = 64 << 10
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
    """Warns on stderr where accent stripping removes marks that are no accents.

    A sample of the text is read: the beginning of up to 8 units, evenly over the corpus.
    """
    marks: collections.Counter[str] = collections.Counter()
    characters = 0
    for text in _sample(corpus):
        characters += len(text)
        marks.update(c for c in unicodedata.normalize("NFD", text) if _is_needed(c))
    share = marks.total() / max(1, characters)
    if share >= _NOTICED_SHARE:
        warn(
            f"accents are stripped, and with them {marks.total():,} combining marks of "
            f"{_script(marks)} in the {characters:,} characters looked at, which are no accents "
            "there but vowels, tones or letters: build with --nostrip_accents"
        )


def _sample(corpus: Corpus) -> list[str]:
    texts = []
    step = -(-len(corpus.units) // _SAMPLED_UNITS)
    for unit in corpus.units[::step]:
        left = _CHARACTERS_PER_UNIT
        for document in corpus.documents(unit, collections.Counter()):
            texts.append("\n".join(document.lines)[:left])
            left -= len(texts[-1])
            if left <= 0:
                break
    return texts


def _is_needed(character: str) -> bool:
    code = ord(character)
    return any(first <= code <= last for first, last in _BLOCKS) and (
        unicodedata.category(character) == "Mn"
    )


def _script(marks: collections.Counter[str]) -> str:
    """The script of the most frequent mark: its name begins with it."""
    first = unicodedata.name(marks.most_common(1)[0][0]).split()[0].capitalize()
    return "kana" if first == "Combining" else first

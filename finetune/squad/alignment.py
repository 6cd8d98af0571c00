"""Where in the original text each word piece stands.

Tokens are those of the normalised text, without accents for instance, while answers are slices of
the text as it was written. So every normalised character is traced back to the one it comes from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from data.tokenization import ACCENTS, Tokenizer


@dataclasses.dataclass(frozen=True)
class AlignedTokens:
    """The word pieces of a text.

    Attributes:
        ids: int32 [T].
        char_start: int32 [T], first character of the text that the piece covers.
        char_end: int32 [T], one past its last; greater than `char_start`.
    """

    ids: np.ndarray
    char_start: np.ndarray
    char_end: np.ndarray

    def cover(self, start: int, end: int) -> tuple[int, int] | None:
        """First and last piece that touch the characters [start, end); None where none does."""
        first = int(np.searchsorted(self.char_end, start, side="right"))
        last = int(np.searchsorted(self.char_start, end, side="left")) - 1
        return (first, last) if first <= last else None


def align(texts: Sequence[str], tokenizer: Tokenizer) -> list[AlignedTokens]:
    """Tokenizes texts; the ids are those of `tokenizer.tokenize`.

    A piece covers whole characters of the original: where one of them has several normalised
    characters in different pieces, the pieces overlap. Accents that were removed belong to the
    character before them; other removed characters belong to a piece only inside of it.
    """
    if not texts:
        return []
    counts, is_mark = _character_tables(texts, tokenizer)
    normalized = _normalize(texts, tokenizer)
    ids, starts, ends, splits = tokenizer.tokenize_with_offsets(normalized)
    aligned = []
    for index, (text, normal) in enumerate(zip(texts, normalized)):
        row = slice(splits[index], splits[index + 1])
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        source = np.repeat(np.arange(len(codes)), counts[codes])  # of each normalised character
        assert len(source) == len(normal), "normalisation is not one of single characters"
        character = _character_of_byte(normal)
        first = source[character[starts[row]]]
        last = source[character[ends[row] - 1]]
        after = _end_with_marks((counts[codes] == 0) & is_mark[codes])[last]
        aligned.append(AlignedTokens(ids[row], first.astype(np.int32), after.astype(np.int32)))
    return aligned


def _normalize(texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    normalized = tokenizer.normalize(tf.constant(texts, tf.string))
    return [text.decode() for text in normalized.numpy()]


def _character_tables(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """By code point: how many characters it is when normalised, and whether it is an accent.

    Normalisation may choose among forms of a character by its neighbours (a final sigma), but never
    changes how many it makes of one.
    """
    characters = sorted(set().union(*texts)) or [" "]
    size = ord(characters[-1]) + 1
    counts, is_mark = np.zeros(size, np.int64), np.zeros(size, bool)
    marks = tf.strings.regex_full_match(characters, ACCENTS).numpy()
    for character, normal, mark in zip(characters, _normalize(characters, tokenizer), marks):
        counts[ord(character)], is_mark[ord(character)] = len(normal), mark
    return counts, is_mark


def _character_of_byte(text: str) -> np.ndarray:
    """The character that each byte of the text in UTF-8 belongs to: int64 [bytes]."""
    encoded = np.frombuffer(text.encode(), np.uint8)
    return np.cumsum((encoded & 0xC0) != 0x80) - 1  # continuation bytes are 10xxxxxx


def _end_with_marks(removed_mark: np.ndarray) -> np.ndarray:
    """For each character, one past it and the removed accents that follow it: int64 [length]."""
    n = len(removed_mark)
    stops = np.where(removed_mark, n, np.arange(n))
    stops = np.minimum.accumulate(stops[::-1])[::-1]  # the next character that is not an accent
    return np.append(stops, n)[1:]

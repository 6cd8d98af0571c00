"""WordPiece tokenization as in BERT's Python tokenizer, in TensorFlow ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from convbert.data.vocabulary import Vocabulary

# The original removes control and format characters, NUL and U+FFFD, except tab and line breaks.
_REMOVED = r"[\p{Cf}\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\x{fffd}]"
ACCENTS = r"\p{Mn}"  # by the op's Unicode tables, not Python's
_REMOVED_AND_ACCENTS = _REMOVED.replace("[", r"[\p{Mn}", 1)
# The marks besides accents that NFD sorts, in quadratic time if they alternate (100,000: 18 s). As
# in UAX #15 (Stream-Safe Text Format), a run of 30 ends with U+034F, an accent that blocks sorting.
_OTHER_SORTED_MARKS = (
    r"[\x{897}\x{1715}\x{1734}\x{1b44}\x{1baa}\x{1bf2}\x{1bf3}\x{302e}\x{302f}\x{a953}\x{a9c0}"
    r"\x{10d69}-\x{10d6d}\x{111c0}\x{11235}\x{1134d}\x{113ce}-\x{113d0}\x{116b6}\x{1193d}\x{11f41}"
    r"\x{1612f}\x{16ff0}\x{16ff1}\x{1d165}\x{1d166}\x{1d16d}-\x{1d172}\x{1e5ee}\x{1e5ef}]"
)
_LONG_RUN = f"({_OTHER_SORTED_MARKS}{{30}})"
# The original replaces words over 200 characters by [UNK]; a character has at most four bytes, and
# three times as many after NFD. Here, longer words are split instead of lost.
_MAX_BYTES_PER_WORD = 200 * 4 * 3
# Much larger batches exceed the CPU's caches: a fifth of the speed at 100,000 lines.
_LINES_PER_BATCH = 2048
_CHARACTERS_PER_BATCH = 2 << 20  # fewer long lines: the ops need many times the text's memory
T = TypeVar("T")


def normalize(lines: tf.Tensor, *, do_lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Cleans text and, if requested, lower-cases it and strips accents.

    The steps are BERT's: remove control characters, lower-case, decompose (NFD), remove Mn marks.
    `FastBertTokenizer(lower_case_nfd_strip_accents=True)` differs: it folds case with compatibility
    mappings ("ß" becomes "ss", "6½" becomes "61⁄2", "…" becomes "..."), and cannot lower-case
    without stripping accents.

    Time is linear in the length of the text. For this, accents are also removed before NFD, and NFD
    sorts runs of more than 30 other combining marks 30 at a time. The result differs only for such
    runs, for two such marks with an accent between them, and for Σ next to an accent that is newer
    than the Unicode tables of the lower-casing op.

    Lines are UTF-8, string [...]. With `strip_accents` the result is NFD, else it keeps its form.
    """
    lines = tf.strings.regex_replace(lines, _REMOVED_AND_ACCENTS if strip_accents else _REMOVED, "")
    if do_lower_case:
        lines = tf.strings.lower(lines, encoding="utf-8")
    if strip_accents:
        lines = tf.strings.regex_replace(lines, _LONG_RUN, "\\1\u034f")
        lines = tf_text.normalize_utf8(lines, "NFD")
        lines = tf.strings.regex_replace(lines, ACCENTS, "")
    return lines


def batches(items: Iterable[T], characters: Callable[[Any], int] = len) -> Iterator[list[T]]:
    """Groups items for one call of the ops, with bounded number and characters."""
    batch: list[T] = []
    total = 0
    for item in items:
        size = characters(item)
        if batch and (total + size > _CHARACTERS_PER_BATCH or len(batch) == _LINES_PER_BATCH):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


class Frame(NamedTuple):
    """The ids of the special pieces around the texts of a sequence.

    BERT's [CLS] A [SEP] B [SEP] has `begin` ([CLS],) in segment 0 and `after_text` ([SEP],) in the
    segment of its text. XLNet's A <sep> B <sep> <cls> has `after_text` (<sep>,), `end` (<cls>,) and
    `end_segment` 2.
    """

    begin: tuple[int, ...]
    after_text: tuple[int, ...]
    end: tuple[int, ...] = ()
    end_segment: int = 0

    def size(self, texts: int) -> int:
        """Returns the number of special pieces in a sequence of one or two texts."""
        return len(self.begin) + texts * len(self.after_text) + len(self.end)


class Tokenizer:
    """Splits lines into WordPiece ids, without special tokens.

    Returns the ids of BERT's Python tokenizer, with two exceptions: characters that are only in one
    side's Unicode tables, and words over 200 characters, which are split into pieces here.
    """

    # A regular expression of marks that normalisation may remove after a character.
    marks = ACCENTS
    normalization = staticmethod(normalize)  # a function as `normalize`
    before_word = ""  # what separates a word from the one before, where words are tokenized apart
    in_graph = True  # made of TensorFlow's operations, so that a SavedModel can hold it

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._wordpiece = tf_text.FastBertTokenizer(
            list(vocabulary.tokens),
            max_bytes_per_word=_MAX_BYTES_PER_WORD,
            token_out_type=tf.int32,
            unknown_token="[UNK]",
            lower_case_nfd_strip_accents=False,  # see `normalize`
        )

    @property
    def frame(self) -> Frame:
        """[CLS] text [SEP] text [SEP]."""
        return Frame((self.vocabulary.cls_id,), (self.vocabulary.sep_id,))

    def tokenize(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of lines, int32 [total], and their row splits, int64 [lines + 1]."""
        ids = [np.zeros(0, np.int32)]
        lengths = [np.zeros(1, np.int64)]
        for part in batches(lines):
            ragged = self.tokenize_ragged(tf.constant(part, tf.string))
            ids.append(ragged.values.numpy())
            lengths.append(np.diff(ragged.row_splits.numpy()))
        return np.concatenate(ids), np.cumsum(np.concatenate(lengths))

    def tokenize_documents(
        self, documents: Sequence[Sequence[str]]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Tokenizes the lines of some documents in one call.

        Yields the ids of each document, int32 [n], and the number of ids up to the end of each
        line, int64 [lines].
        """
        ids, row_splits = self.tokenize([line for lines in documents for line in lines])
        row = 0
        for lines in documents:
            bounds = row_splits[row : row + len(lines) + 1]
            row += len(lines)
            yield ids[bounds[0] : bounds[-1]], bounds[1:] - bounds[0]

    def tokenize_ragged(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes string [B] to int32 [B, None]; also inside a `tf.function` or SavedModel."""
        return self._wordpiece.tokenize(self.normalize(lines))

    def tokenize_ragged_with_offsets(self, normalized: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """Tokenizes normalised string [B]; also inside a graph.

        Returns (ids int32, starts int64, ends int64), [B, None] each. Starts and ends count bytes
        of the line in UTF-8; the end is exclusive.
        """
        return self._wordpiece.tokenize_with_offsets(normalized)

    def characters_made(self, codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts the characters that normalisation produces for each code point [B, (characters)].

        Returns int32 [all characters], and bool, True for removed marks.
        """
        distinct, index = tf.unique(codes.values)
        characters = tf.strings.unicode_encode(distinct[:, None], "UTF-8")
        counts = tf.strings.length(self.normalize(characters), unit="UTF8_CHAR")
        removed_mark = tf.strings.regex_full_match(characters, self.marks) & (counts == 0)
        return tf.gather(counts, index), tf.gather(removed_mark, index)

    def normalize(self, lines: tf.Tensor) -> tf.Tensor:
        """Applies `normalization` with the vocabulary's switches."""
        return self.normalization(
            lines,
            do_lower_case=self.vocabulary.do_lower_case,
            strip_accents=self.vocabulary.strip_accents,
        )

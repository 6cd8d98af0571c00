"""Text to SentencePiece ids, as XLNet's Python code does it, in TensorFlow ops.

Source: `preprocess_text` and `encode_pieces` in prepro_utils.py of zihangdai/xlnet.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import unicodedata

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer as ops

from convbert.data.tokenization import Frame, Tokenizer
from convbert.data.vocabulary import WORD_BEGIN, Vocabulary

_WHITESPACE = r"[\x09-\x0d\x1c-\x1f\x{85}\p{Z}]"  # where Python's str.split() divides
_QUOTES = "`'"  # two of one kind are a double quote
_LAST_MARK = 0x20000  # no combining mark is beyond
_WHOLE = 1 << 30  # bytes; longer than any piece


def normalize(lines: tf.Tensor, *, do_lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """XLNet's `preprocess_text` of string [...]: whitespace is one space, `` and '' are ".

    `strip_accents` decomposes (NFKD) and drops combining marks (XLNet's `keep_accents` is false).
    """
    lines = tf.strings.strip(tf.strings.regex_replace(lines, f"{_WHITESPACE}+", " "))
    lines = tf.strings.regex_replace(lines, "|".join(2 * quote for quote in _QUOTES), '"')
    if strip_accents:
        # Before too: NFKD sorts runs of marks, in quadratic time where they alternate.
        lines = tf.strings.regex_replace(lines, _marks(), "")
        lines = tf_text.normalize_utf8(lines, "NFKD")
        lines = tf.strings.regex_replace(lines, _marks(), "")
    if do_lower_case:
        # The op ends texts at NUL. No piece has either character.
        lines = tf.strings.regex_replace(lines, r"\x00", "\U0010ffff")
        lines = tf.strings.lower(lines, encoding="utf-8")
    return lines


@functools.cache
def _marks() -> str:
    """The characters of which NFKD makes nothing but combining marks, as a class of RE2."""

    def is_mark(code: int) -> bool:
        return all(map(unicodedata.combining, unicodedata.normalize("NFKD", chr(code))))

    codes = enumerate(filter(is_mark, range(_LAST_MARK)))
    grouped = itertools.groupby(codes, lambda item: item[1] - item[0])
    runs = [[code for _, code in run] for _, run in grouped]
    return "[" + "".join(rf"\x{{{run[0]:x}}}-\x{{{run[-1]:x}}}" for run in runs) + "]"


class SentencePieceTokenizer(Tokenizer):
    """Cuts lines into the pieces of a SentencePiece model; adds no special ones.

    Gives the ids of XLNet's `encode_ids`, with its rule for commas: a piece that ends with a digit
    and a comma is cut before the comma, and what is before it is cut into pieces again. Two
    exceptions: characters that only one side's Unicode tables know, and text of unknown characters
    alone, which is one <unk> here, even where it reads "<sep>", or has a comma that is no piece.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        # Twice as fast as SentencepieceTokenizer, and no resource, which signatures of a SavedModel
        # must track. Of cuts of equal score ("11 1", "1 11") it takes the one that the Python
        # package takes, and the other another one; but it has no offsets.
        with tf.init_scope():
            self._pieces = tf_text.FastSentencepieceTokenizer(vocabulary.model)
        self._name = f"sentencepiece {hashlib.sha256(vocabulary.model).hexdigest()}"
        self._cuts = self._cut_before_commas()

    marks = property(lambda self: _marks())

    @property
    def frame(self) -> Frame:
        """text <sep> text <sep> <cls>, with a segment of its own for <cls>."""
        return Frame((), (self.vocabulary.sep_id,), (self.vocabulary.cls_id,), 2)

    def tokenize_ragged(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes string [B] to int32 [B, None]; also inside a `tf.function` or SavedModel."""
        found = self._pieces.tokenize(self.normalize(lines))
        parts, splits = self._parts(found.values, found.row_splits)
        return tf.RaggedTensor.from_row_splits(
            tf.gather(self._cuts["ids"], parts.values), splits, validate=False
        )

    def tokenize_ragged_with_offsets(self, normalized: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """See `Tokenizer`. Of cuts of equal score it may take another one than `tokenize_ragged`.

        A piece does not cover the space before it, unless it is nothing else. One that stands for
        a space which is not there, at the beginning of a text, covers nothing.
        """
        # Graphs hold the bytes of the model, which is in memory once under its name.
        model = ops.sentencepiece_op(model=self.vocabulary.model, shared_name=self._name)
        ids, splits, starts, ends = ops.sentencepiece_tokenize_with_offsets_op(
            model, normalized, *_BEST, return_nbest=False
        )
        parts, splits = self._parts(ids, splits)
        piece = _rows(parts.row_splits, tf.size(parts.values))
        start, end = (tf.gather(tf.cast(x, tf.int64), piece) for x in (starts, ends))
        start, end = (
            tf.maximum(start, end - tf.gather(self._cuts[name], parts.values))
            for name in ("start", "end")
        )
        start += tf.cast(_begins_with_space(normalized, splits, start, end), tf.int64)
        columns = (tf.gather(self._cuts["ids"], parts.values), start, end)
        return tuple(tf.RaggedTensor.from_row_splits(x, splits, validate=False) for x in columns)

    def characters_made(self, codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Tokenizer`. Of spaces in a row the first becomes one, of quotes each pair."""
        counts, removed_mark = super().characters_made(codes)
        characters = tf.strings.unicode_encode(codes.values[:, None], "UTF-8")
        is_space = tf.strings.regex_full_match(characters, _WHITESPACE)
        place, at_edge = _in_run(codes, is_space)
        counts = tf.where(is_space, tf.cast((place == 0) & ~at_edge, tf.int32), counts)
        for quote in _QUOTES:
            is_quote = codes.values == ord(quote)
            place, _ = _in_run(codes, is_quote)
            second = is_quote & (place % 2 == 1)  # belongs to the first
            counts, removed_mark = tf.where(second, 0, counts), removed_mark | second
        return counts, removed_mark

    def normalize(self, lines: tf.Tensor) -> tf.Tensor:
        """`normalize` of this module with the vocabulary's switches."""
        return normalize(
            lines,
            do_lower_case=self.vocabulary.do_lower_case,
            strip_accents=self.vocabulary.strip_accents,
        )

    def _parts(self, ids: tf.Tensor, splits: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The places in `_cuts` of what each piece becomes, [n, (parts)]; the splits of lines."""
        begins = tf.constant(self._cuts["splits"])
        parts = tf.ragged.range(tf.gather(begins, ids), tf.gather(begins, ids + 1))
        return parts, tf.gather(parts.row_splits, splits)

    def _cut_before_commas(self) -> dict[str, np.ndarray]:
        """Returns the pieces that each piece of the vocabulary becomes by the rule for commas.

        `splits` [V + 1] are row splits of `ids`, `start` and `end`, in bytes from its end.
        """
        tokens = self.vocabulary.tokens
        numbers = {
            number: piece
            for number, piece in enumerate(tokens)
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
        }
        texts = [piece[:-1].replace(WORD_BEGIN, "") for piece in numbers.values()]
        with tf.init_scope():
            found = self._pieces.tokenize(tf.constant(texts, tf.string)).to_list()
        rows = [[(number, _WHOLE, 0)] for number in range(len(tokens))]
        for (number, piece), text, ids in zip(numbers.items(), texts, found):
            if not piece.startswith(WORD_BEGIN) and tokens[ids[0]].startswith(WORD_BEGIN):
                rest = tokens[ids[0]].removeprefix(WORD_BEGIN)
                own = self.vocabulary.ids.get(rest, self.vocabulary.unk_id)
                ids[:1] = [own] if rest else []
            rows[number] = self._from_end(ids, text)
        table = np.array([part for row in rows for part in row], np.int64)
        return {
            "splits": np.cumsum([0, *map(len, rows)]),
            "ids": table[:, 0].astype(np.int32),
            "start": table[:, 1],
            "end": table[:, 2],
        }

    def _from_end(self, ids: list[int], text: str) -> list[tuple[int, int, int]]:
        """(id, start, end) of the pieces of a text and of the comma behind it.

        Start and end are bytes before the comma's end. The first piece begins where what it was
        cut from does, as that has a space before the text. Where a piece is <unk>, all end there.
        """
        sizes = [len(self.vocabulary.tokens[n].replace(WORD_BEGIN, "").encode()) for n in ids]
        size = len(text.encode())
        ends = np.cumsum(sizes) if sum(sizes) == size else np.full(len(ids), size)
        places = [size + 1 - end for end in ends.tolist()]
        comma = self.vocabulary.ids.get(",", self.vocabulary.unk_id)
        return list(zip([*ids, comma], [_WHOLE, *places], [*places, 0]))


def _rows(splits: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The row of each of a ragged tensor's values, int64 [number]."""
    places = tf.range(tf.cast(number, tf.int64))
    return tf.searchsorted(splits[1:], places, side="right", out_type=tf.int64)


def _begins_with_space(
    lines: tf.Tensor, splits: tf.Tensor, start: tf.Tensor, end: tf.Tensor
) -> tf.Tensor:
    """Returns bool [n]: bytes [start, end) are a space and more. `splits`: row splits of lines."""
    first = tf.cumsum(tf.cast(tf.strings.length(lines), tf.int64), exclusive=True)  # [B]
    content = tf.io.decode_raw(tf.strings.reduce_join(lines), tf.uint8)
    content = tf.pad(content, [[0, 1]])  # a text of no bytes may have a piece that covers nothing
    place = tf.gather(first, _rows(splits, tf.size(start))) + start
    return (tf.gather(content, place) == ord(" ")) & (end - start > 1)


def _in_run(codes: tf.RaggedTensor, chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Of chosen characters of texts: their place in a run of such, from 0, and whether it is at an
    edge of the text: int64, bool [all characters]; the others' values mean nothing.
    """
    number = tf.size(chosen, tf.int64)
    own, text = tf.range(number), _rows(codes.row_splits, number)
    others = tf.where(~chosen)[:, 0]
    before = tf.searchsorted(others, own)  # how many of the others are
    first = tf.gather(tf.concat([[-1], others], 0), before) + 1
    after = tf.gather(tf.concat([others, [number]], 0), before)
    begin, end = (tf.gather(x, text) for x in (codes.row_starts(), codes.row_limits()))
    return own - tf.maximum(first, begin), (first <= begin) | (after >= end)


# nbest_size, alpha, add_bos, add_eos, reverse, out_type: the best pieces of the text alone.
_BEST = (0, 1.0, False, False, False, tf.int32)

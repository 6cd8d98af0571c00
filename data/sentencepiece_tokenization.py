"""SentencePiece tokenization as in XLNet's Python code, in TensorFlow ops.

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

from convbert.data.text.layout import row_ids, rows_of_ends
from convbert.data.text.words import WHITESPACE
from convbert.data.tokenization import Frame, Tokenizer
from convbert.data.vocabulary import WORD_BEGIN, Vocabulary

_QUOTES = "`'"  # two equal ones are a double quote
_LAST_MARK = 0x20000  # all combining marks are below
_WHOLE = 1 << 30  # bytes; longer than any piece


def normalize(lines: tf.Tensor, *, do_lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Applies XLNet's `preprocess_text` to string [...]: merges whitespace, `` and '' become ".

    `strip_accents` decomposes (NFKD) and drops combining marks (XLNet's `keep_accents` is false).
    """
    lines = tf.strings.strip(tf.strings.regex_replace(lines, f"{WHITESPACE}+", " "))
    lines = tf.strings.regex_replace(lines, "|".join(2 * quote for quote in _QUOTES), '"')
    if strip_accents:
        # Before NFKD too, which sorts runs of marks, in quadratic time if they alternate.
        lines = tf.strings.regex_replace(lines, _marks(), "")
        lines = tf_text.normalize_utf8(lines, "NFKD")
        lines = tf.strings.regex_replace(lines, _marks(), "")
    if do_lower_case:
        # The op ends texts at NUL. No piece contains either character.
        lines = tf.strings.regex_replace(lines, r"\x00", "\U0010ffff")
        lines = tf.strings.lower(lines, encoding="utf-8")
    return lines


@functools.cache
def _marks() -> str:
    """Returns an RE2 class of the characters that NFKD maps to combining marks only."""

    def is_mark(code: int) -> bool:
        return all(map(unicodedata.combining, unicodedata.normalize("NFKD", chr(code))))

    codes = enumerate(filter(is_mark, range(_LAST_MARK)))
    grouped = itertools.groupby(codes, lambda item: item[1] - item[0])
    runs = [[code for _, code in run] for _, run in grouped]
    return "[" + "".join(rf"\x{{{run[0]:x}}}-\x{{{run[-1]:x}}}" for run in runs) + "]"


class SentencePieceTokenizer(Tokenizer):
    """Splits lines into pieces of a SentencePiece model, without special pieces.

    Returns the ids of XLNet's `encode_ids`, with its rule for commas: a piece that ends with a
    digit and a comma is split before the comma, and the part before it is tokenized again. Two
    exceptions: characters that are only in one side's Unicode tables, and text of unknown
    characters only, which is one <unk> here, even "<sep>" or a comma that is not a piece.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        # Twice as fast as SentencepieceTokenizer, and not a resource, which signatures of a
        # SavedModel must track. Breaks ties between equal scores ("11 1", "1 11") as the Python
        # package does, unlike the other op; but it has no offsets.
        with tf.init_scope():
            self._pieces = tf_text.FastSentencepieceTokenizer(vocabulary.model)
        self._name = f"sentencepiece {hashlib.sha256(vocabulary.model).hexdigest()}"
        self._cuts = self._cut_before_commas()

    marks = property(lambda self: _marks())
    normalization = staticmethod(normalize)

    @property
    def frame(self) -> Frame:
        """text <sep> text <sep> <cls>, with a separate segment for <cls>."""
        return Frame((), (self.vocabulary.sep_id,), (self.vocabulary.cls_id,), 2)

    def tokenize_ragged(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes string [B] to int32 [B, None]; also inside a `tf.function` or SavedModel."""
        found = self._pieces.tokenize(self.normalize(lines))
        parts, splits = self._parts(found.values, found.row_splits)
        return tf.RaggedTensor.from_row_splits(
            tf.gather(self._cuts["ids"], parts.values), splits, validate=False
        )

    def tokenize_ragged_with_offsets(self, normalized: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """Tokenizes normalised text with offsets; may break ties unlike `tokenize_ragged`.

        A piece does not cover the space before it, unless the piece is only a space. A piece for
        the implicit space at the beginning of a text covers nothing.
        """
        # Graphs hold the model's bytes; in memory the model exists once, under its name.
        model = ops.sentencepiece_op(model=self.vocabulary.model, shared_name=self._name)
        ids, splits, starts, ends = ops.sentencepiece_tokenize_with_offsets_op(
            model, normalized, *_BEST, return_nbest=False
        )
        parts, splits = self._parts(ids, splits)
        piece = row_ids(parts)
        start, end = (tf.gather(tf.cast(x, tf.int64), piece) for x in (starts, ends))
        start, end = (
            tf.maximum(start, end - tf.gather(self._cuts[name], parts.values))
            for name in ("start", "end")
        )
        start += tf.cast(_begins_with_space(normalized, splits, start, end), tf.int64)
        columns = (tf.gather(self._cuts["ids"], parts.values), start, end)
        return tuple(tf.RaggedTensor.from_row_splits(x, splits, validate=False) for x in columns)

    def characters_made(self, codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts as `Tokenizer`, with one character for several spaces or a pair of quotes."""
        counts, removed_mark = super().characters_made(codes)
        characters = tf.strings.unicode_encode(codes.values[:, None], "UTF-8")
        is_space = tf.strings.regex_full_match(characters, WHITESPACE)
        place, at_edge = _in_run(codes, is_space)
        counts = tf.where(is_space, tf.cast((place == 0) & ~at_edge, tf.int32), counts)
        for quote in _QUOTES:
            is_quote = codes.values == ord(quote)
            place, _ = _in_run(codes, is_quote)
            second = is_quote & (place % 2 == 1)  # belongs to the first
            counts, removed_mark = tf.where(second, 0, counts), removed_mark | second
        return counts, removed_mark

    def _parts(self, ids: tf.Tensor, splits: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Returns the indices in `_cuts` of each piece's parts, [n, (parts)], and line splits."""
        begins = tf.constant(self._cuts["splits"])
        parts = tf.ragged.range(tf.gather(begins, ids), tf.gather(begins, ids + 1))
        return parts, tf.gather(parts.row_splits, splits)

    def _cut_before_commas(self) -> dict[str, np.ndarray]:
        """Returns the parts of each piece of the vocabulary under the rule for commas.

        `splits` [V + 1] are row splits of `ids`, `start` and `end`, in bytes from the piece's end.
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
        """Returns (id, start, end) of the pieces of a text and of the comma after it.

        Start and end are bytes before the comma's end. The first piece begins where the original
        piece does, which has a space before the text. If a piece is <unk>, all end there.
        """
        sizes = [len(self.vocabulary.tokens[n].replace(WORD_BEGIN, "").encode()) for n in ids]
        size = len(text.encode())
        ends = np.cumsum(sizes) if sum(sizes) == size else np.full(len(ids), size)
        places = [size + 1 - end for end in ends.tolist()]
        comma = self.vocabulary.ids.get(",", self.vocabulary.unk_id)
        return list(zip([*ids, comma], [_WHOLE, *places], [*places, 0]))


def _begins_with_space(
    lines: tf.Tensor, splits: tf.Tensor, start: tf.Tensor, end: tf.Tensor
) -> tf.Tensor:
    """Returns bool [n]: bytes [start, end) are a space and more; `splits` are of lines."""
    first = tf.cumsum(tf.cast(tf.strings.length(lines), tf.int64), exclusive=True)  # [B]
    content = tf.io.decode_raw(tf.strings.reduce_join(lines), tf.uint8)
    content = tf.pad(content, [[0, 1]])  # an empty text may have a piece that covers nothing
    place = tf.gather(first, rows_of_ends(splits[1:])) + start
    return (tf.gather(content, place) == ord(" ")) & (end - start > 1)


def _in_run(codes: tf.RaggedTensor, chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each chosen character's index in its run, and if the run is at an edge of the text:
    int64 and bool [all characters], arbitrary for other characters."""
    number = tf.size(chosen, tf.int64)
    own, text = tf.range(number), row_ids(codes)
    others = tf.where(~chosen)[:, 0]
    before = tf.searchsorted(others, own)  # number of others that are
    first = tf.gather(tf.concat([[-1], others], 0), before) + 1
    after = tf.gather(tf.concat([others, [number]], 0), before)
    begin, end = (tf.gather(x, text) for x in (codes.row_starts(), codes.row_limits()))
    return own - tf.maximum(first, begin), (first <= begin) | (after >= end)


# nbest_size, alpha, add_bos, add_eos, reverse, out_type: the best pieces of the text alone.
_BEST = (0, 1.0, False, False, False, tf.int32)

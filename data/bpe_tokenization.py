"""Byte-level BPE, ModernBERT's, by the package tokenizers: in Python, called from graphs.

TensorFlow Text has no operation that computes these ids, so a SavedModel cannot hold the tokenizer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
import tokenizers

from convbert.data.tokenization import Tokenizer
from convbert.data.vocabulary import Vocabulary


class BytePairTokenizer(Tokenizer):
    """Splits lines into tokens of a byte-level BPE, without special tokens around them.

    Returns the ids of transformers with `add_special_tokens=False`: special tokens within a text,
    such as "[MASK]" and "[SEP]", become their ids, so texts from others may contain them.
    """

    in_graph = False
    before_word = " "

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._tokenizer = tokenizers.Tokenizer.from_buffer(vocabulary.model)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.post_processor = None  # whose template could leave the text out

    def tokenize_documents(
        self, documents: Sequence[Sequence[str]]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Tokenizes as `Tokenizer`, with a space between the lines of a document."""
        return super().tokenize_documents(
            [
                [*lines[:1], *(f" {line}" if line else "" for line in lines[1:])]
                for lines in documents
            ]
        )

    def tokenize_ragged(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes string [B] to int32 [B, None]; in graphs of this process alone."""
        ids, lengths = tf.numpy_function(self._ids, [lines], (tf.int32, tf.int64))
        return _ragged(lengths, ids)[0]

    def tokenize_ragged_with_offsets(self, normalized: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """Tokenizes with offsets; a piece does not cover the space before it, unless it is one.

        Pieces that are parts of a character cover the whole of it. An accent that normalisation
        (NFC) merges into the character before it is not covered.
        """
        types = (tf.int32, tf.int64, tf.int64, tf.int64)
        *columns, lengths = tf.numpy_function(self._with_offsets, [normalized], types)
        return _ragged(lengths, *columns)

    def normalize(self, lines: tf.Tensor) -> tf.Tensor:
        """Returns the lines: the tokenizer normalises them itself, and keeps track of it."""
        return lines

    def _ids(self, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids of all pieces, and pieces per line."""
        found = self._tokenizer.encode_batch_fast(_texts(lines), add_special_tokens=False)
        return _counted(found)

    def _with_offsets(self, lines: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns ids, starts and ends in bytes, of all pieces; and pieces per line."""
        texts = _texts(lines)
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for text, pieces in zip(texts, found, strict=True):
            begin, end = np.array(pieces.offsets, np.int64).reshape(-1, 2).T
            bytes_before = np.cumsum([0, *(len(character.encode()) for character in text)])
            is_space = np.array([*map(str.isspace, text), False])
            begin = begin + (is_space[begin] & (end - begin > 1))
            starts.append(bytes_before[begin])
            ends.append(bytes_before[end])
        ids, lengths = _counted(found)
        return ids, np.concatenate(starts), np.concatenate(ends), lengths


def _texts(lines: np.ndarray) -> list[str]:
    return [line.decode(errors="replace") for line in lines]


def _counted(found) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of encodings, and their numbers."""
    lengths = np.array([len(pieces.ids) for pieces in found], np.int64)
    ids = itertools.chain.from_iterable(pieces.ids for pieces in found)
    return np.fromiter(ids, np.int32, lengths.sum()), lengths


def _ragged(lengths: tf.Tensor, *columns: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
    for vector in (lengths, *columns):
        vector.set_shape([None])
    ragged = tf.RaggedTensor.from_row_lengths
    return tuple(ragged(column, lengths, validate=False) for column in columns)

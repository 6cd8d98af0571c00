"""Nearest vectors by exact products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from convbert.common.errors import InputError

_BLOCK = 1 << 24  # products in memory, of some queries with the whole corpus


class Found(NamedTuple):
    """The k nearest of a corpus for each of n queries, the nearest first."""

    indices: np.ndarray  # int64 [n, k], into the corpus
    scores: np.ndarray  # float32 [n, k], cosines


def unit(vectors: np.ndarray, dimensions: int | None = None) -> np.ndarray:
    """Returns the first `dimensions` of vectors [..., D] at unit length, float32."""
    D = vectors.shape[-1]
    if dimensions is not None and not 0 < dimensions <= D:
        raise InputError(f"`dimensions` should be from 1 to {D}. Received: {dimensions}")
    vectors = np.asarray(vectors[..., :dimensions], np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def check_lengths(a: np.ndarray, b: np.ndarray) -> None:
    """Raises InputError if vectors have different lengths."""
    if a.shape[-1] != b.shape[-1]:
        raise InputError(
            f"vectors should be of one length. Received: {a.shape[-1]} and {b.shape[-1]}"
        )


def nearest(queries: np.ndarray, corpus: np.ndarray, k: int) -> Found:
    """Finds the k vectors of a corpus [m, D] with the highest product with queries [n, D].

    Of equal products, the first in the corpus is nearer.

    Raises:
        InputError: the corpus is empty, k is not in 1 to m, or vectors have different lengths.
    """
    if not len(corpus):
        raise InputError("the corpus should have at least one text. Received: none")
    if not 0 < k <= len(corpus):
        raise InputError(f"`k` should be from 1 to {len(corpus)}, the corpus. Received: {k}")
    check_lengths(queries, corpus)
    indices = np.empty([len(queries), k], np.int64)
    scores = np.empty([len(queries), k], np.float32)
    size = max(1, _BLOCK // len(corpus))
    for first in range(0, len(queries), size):
        rows = slice(first, first + size)
        scores[rows], indices[rows] = tf.math.top_k(queries[rows] @ corpus.T, k)
    return Found(indices, scores)

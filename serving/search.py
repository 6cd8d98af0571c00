"""Nearest vectors by exact products, in blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from convbert.common.errors import InputError

_BLOCK = 1 << 16  # vectors of the corpus at a time
_QUERIES = 256


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
    for first in range(0, len(queries), _QUERIES):
        rows = slice(first, first + _QUERIES)
        of_rows = queries[rows]
        best, places = (np.zeros([len(of_rows), 0], kind) for kind in (np.float32, np.int64))
        for start in range(0, len(corpus), _BLOCK):
            found = of_rows @ corpus[start : start + _BLOCK].T
            here = np.broadcast_to(np.arange(start, start + found.shape[1]), found.shape)
            best, places = _highest(np.hstack([best, found]), np.hstack([places, here]), k)
        indices[rows], scores[rows] = places, best
    return Found(indices, scores)


def _highest(scores: np.ndarray, places: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k highest scores of each row, or all, and their places; both sorted."""
    k = min(k, scores.shape[1])
    least = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]
    chosen = []
    for row, found, where in zip(scores >= least, scores, places):
        (reached,) = np.nonzero(row)  # all that reach the k-th score: places decide between equals
        chosen.append(reached[np.lexsort((where[reached], -found[reached]))[:k]])
    order = np.stack(chosen)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(places, order, 1)

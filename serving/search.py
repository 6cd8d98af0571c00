"""Nearest vectors by exact products; whitened and 8-bit vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from convbert.common.errors import InputError

_BLOCK = 1 << 24  # products in memory, of some queries with the whole corpus


class Found(NamedTuple):
    """The k nearest of a corpus for each of n queries, the nearest first."""

    indices: np.ndarray  # int64 [n, k], into the corpus
    scores: np.ndarray  # float32 [n, k], cosines


def unit(vectors: np.ndarray, dimensions: int | None = None) -> np.ndarray:
    """Returns the first `dimensions` of vectors [..., D] at unit length, float32.

    InputError for vectors that are not finite or shorter than `dimensions`.
    """
    vectors = np.asarray(vectors)
    if not vectors.ndim or vectors.dtype.kind not in "fiu":
        raise InputError(f"vectors should be arrays of numbers. Received: {vectors!r:.60}")
    D = vectors.shape[-1]
    if dimensions is not None and not (_is_whole(dimensions) and 0 < dimensions <= D):
        raise InputError(f"`dimensions` should be from 1 to {D}. Received: {dimensions!r}")
    vectors = np.asarray(vectors[..., :dimensions], np.float32)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.isfinite(norms).all():
        raise InputError("vectors should be finite. Received: one that is not")
    return vectors / np.maximum(norms, 1e-12)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def as_int8(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors [..., D] as int8, each scaled so that its largest element is 127 or -127.

    A cosine does not change with the length of its vectors, so no factor has to be kept.
    """
    vectors = unit(vectors)
    largest = np.abs(vectors).max(-1, keepdims=True)
    return np.rint(vectors * (127 / np.maximum(largest, 1e-12))).astype(np.int8)


class Whitening(NamedTuple):
    """A linear map after which the vectors that it was fitted to are centred and uncorrelated."""

    mean: np.ndarray  # [D]
    matrix: np.ndarray  # [D, D]

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Maps vectors [..., D] of any norm to float32 vectors of unit length."""
        check_lengths(np.asarray(vectors), self.mean)
        return unit((unit(vectors) - self.mean) @ self.matrix)


def whitening(vectors: np.ndarray) -> Whitening:
    """Fits a whitening to vectors [n, D]; n should be ten times D or more.

    v -> (v - mean) U / sqrt(s), where v has unit length and U diag(s) U^T is the covariance (Su et
    al. 2021, arXiv 2103.15316). Means of hidden states share a large component, which does not
    depend on the text.

    InputError for vectors that are not finite, for fewer than two, and for equal ones.
    """
    if np.ndim(vectors) != 2 or len(vectors) < 2:
        raise InputError(f"should be vectors [n, D], n > 1. Received: {np.shape(vectors)}")
    vectors = unit(vectors)
    mean = vectors.mean(0)
    variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(vectors - mean, rowvar=False)))
    if not variances.mean() > 0:
        raise InputError("the vectors of a whitening should differ")
    deviations = np.sqrt(variances + 1e-4 * variances.mean())
    return Whitening(mean, (axes / deviations).astype(np.float32))


def check_lengths(a: np.ndarray, b: np.ndarray) -> None:
    """Raises InputError if vectors have different lengths."""
    if a.shape[-1] != b.shape[-1]:
        lengths = f"{a.shape[-1]} and {b.shape[-1]}"
        raise InputError(f"vectors should be of one length. Received: {lengths}")


def nearest(queries: np.ndarray, corpus: np.ndarray, k: int) -> Found:
    """Finds the k vectors of a corpus [m, D] with the highest product with queries [n, D], float32.

    Of a smaller corpus, all m. Of equal products, the first in the corpus is nearer. InputError if
    the corpus is empty, k is below 1, or vectors have different lengths.
    """
    if not len(corpus):
        raise InputError("the corpus should have at least one text. Received: none")
    if np.ndim(queries) != 2 or np.ndim(corpus) != 2:
        shapes = f"{np.shape(queries)} and {np.shape(corpus)}"
        raise InputError(f"should be vectors [n, D] and [m, D]. Received: {shapes}")
    if not (_is_whole(k) and k > 0):
        raise InputError(f"`k` should be a whole number of at least 1. Received: {k!r}")
    check_lengths(queries, corpus)
    k = min(k, len(corpus))
    queries, corpus = np.asarray(queries, np.float32), np.asarray(corpus, np.float32)
    indices = np.empty([len(queries), k], np.int64)
    scores = np.empty([len(queries), k], np.float32)
    size = max(1, min(_BLOCK // len(corpus), len(queries)))
    products = np.empty([size, len(corpus)], np.float32)  # one memory for all blocks
    for first in range(0, len(queries), size):
        rows = slice(first, first + size)
        own = products[: len(queries[rows])]
        np.matmul(queries[rows], corpus.T, out=own)
        scores[rows], indices[rows] = tf.math.top_k(own, k)  # of equals, the first
    return Found(indices, scores)

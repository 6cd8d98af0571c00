"""Exact search: `serving.search.nearest` beside faiss' flat index and the products alone.

    python -m convbert.benchmarks.search --vectors 200000

Vectors are random, of unit length. Both searches should find the same places.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from absl import app, flags

from convbert.benchmarks.interleaved import System, check_same, measure, ratio
from convbert.benchmarks.table import Report
from convbert.common.errors import main_with_clear_errors
from convbert.common.plugins import lazily

_VECTORS = flags.DEFINE_integer("vectors", 200_000, "Vectors of the corpus.", lower_bound=1)
_QUERIES = flags.DEFINE_integer("queries", 500, "Vectors to search for.", lower_bound=1)
_SIZE = flags.DEFINE_integer("size", 256, "Elements of a vector.", lower_bound=1)
_K = flags.DEFINE_integer("k", 10, "Vectors to find.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Prints a row for each system."""
    report = Report({"system": "", "s": ".2f", "times nearest": ".2f", "peak GiB": ".2f"})
    given = {"vectors": _VECTORS.value, "queries": _QUERIES.value, "size": _SIZE.value}
    given["k"] = _K.value
    systems = [
        System(name, f"convbert.benchmarks.search:{name}", given)
        for name in ("nearest", "faiss", "products")
    ]
    results = measure(systems, _ROUNDS.value)
    check_same(results, "places", {"nearest": 0.0, "faiss": 0.0})
    for name, found in results.items():
        report.row(name, found.median, ratio(found, results["nearest"]), found.peak_memory)
    report.missing(results)
    report.end()


def _unit_vectors(vectors: int, queries: int, size: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    found = [draw.standard_normal([n, size], np.float32) for n in (queries, vectors)]
    return [of / np.linalg.norm(of, axis=1, keepdims=True) for of in found]


def nearest(k: int, **shape: int) -> Callable:
    """Ours."""
    search = lazily("convbert.serving.search:nearest")  # imports TensorFlow
    queries, corpus = _unit_vectors(**shape)
    return _with_places(lambda: search(queries, corpus, k).indices)


def faiss(k: int, **shape: int) -> Callable:
    """faiss' `IndexFlatIP`."""
    import faiss

    queries, corpus = _unit_vectors(**shape)
    index = faiss.IndexFlatIP(corpus.shape[1])
    index.add(corpus)
    return _with_places(lambda: index.search(queries, k)[1])


def products(k: int, **shape: int) -> Callable:
    """The products, by NumPy, of as many queries at once as `nearest` takes."""
    queries, corpus = _unit_vectors(**shape)
    rows = max(1, (1 << 24) // len(corpus))
    places = range(0, len(queries), rows)
    return lambda: [queries[i : i + rows] @ corpus.T for i in places][-1]


def _with_places(run: Callable) -> Callable:
    vars(run).update(facts={"places": run()[:, 0].tolist()})
    return run


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

"""Search scored on a retrieval data set in BEIR's layout (Thakur et al. 2021)."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import bm25s
import numpy as np
import pandas as pd
from scipy import stats

from convbert.common.errors import InputError, warn
from convbert.finetune.metrics import ndcg, reciprocal_rank
from convbert.finetune.readers.tables import Row, read_jsonl, read_table
from convbert.serving.search import nearest

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it reports every index
_DEPTH = 100  # documents found for a query, at most
_GRADES = {"query": "query-id", "document": "corpus-id", "grade": "score"}


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Documents and the queries of a split, texts by id, and what is relevant to each query."""

    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, float]]  # query -> document -> grade, above 0


def read(folder: str, split: str = "test") -> DataSet:
    """Reads `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv` of a folder.

    A document's text is its title and its text. InputError for an empty corpus, an id that is
    there twice or not at all, and a query of the split without a relevant document.
    """
    own, columns = os.path.join(folder, "corpus.jsonl"), {"title": "title", "text": "text"}
    documents = _texts(own, columns, empty=True)  # FiQA has empty ones
    queries = _texts(os.path.join(folder, "queries.jsonl"), {"text": "text"})
    path = os.path.join(folder, "qrels", f"{split}.tsv")
    judged: dict[str, dict[str, float]] = {}
    for where, row in read_table(path, False, _GRADES):
        for role, known in (("query", queries), ("document", documents)):
            if row[role] not in known:
                raise InputError(f"{where}: there is no {role} {row[role]!r}")
        try:
            grade = float(row["grade"])
        except ValueError:
            grade = math.nan
        if not math.isfinite(grade):
            raise InputError(f"{where}: the score should be a number. Received: {row['grade']!r}")
        found = judged.setdefault(row["query"], {})
        if row["document"] in found:
            raise InputError(f"{where}: the document {row['document']!r} is there already")
        found[row["document"]] = grade
    relevant = {query: {n: x for n, x in of.items() if x > 0} for query, of in judged.items()}
    if lacking := [query for query, found in relevant.items() if not found]:
        raise InputError(f"{path}: no document is relevant to the query {lacking[0]!r}")
    if not relevant:
        raise InputError(f"{path}: there should be a query. Received: none")
    asked: dict[str, str] = {}
    for name in relevant:
        if (other := asked.setdefault(queries[name], name)) != name:
            warn(f"{path}: the queries {other!r} and {name!r} are one text, with documents of each")
    return DataSet(documents, {query: queries[query] for query in relevant}, relevant)


def _texts(path: str, columns: dict[str, str], empty: bool = False) -> dict[str, str]:
    """Returns id -> text of a file; InputError for an empty text unless it may be `empty`."""
    texts: dict[str, str] = {}
    rows: Iterator[Row] = read_jsonl(path, {"id": "_id", **columns}, optional=("title",))
    for where, row in rows:
        identity, parts = row.pop("id"), [part or "" for part in row.values()]
        if not isinstance(identity, str):
            raise InputError(f"{where}: the id should be a text. Received: {identity!r}")
        if identity in texts:
            raise InputError(f"{where}: the id {identity!r} is there already")
        said = all(isinstance(part, str) for part in parts)
        text = " ".join(parts).strip() if said else ""
        if not said or not (text or empty):
            raise InputError(f"{where}: should have a text that is not empty. Received: {parts!r}")
        texts[identity] = text
    if not texts:
        raise InputError(f"{path}: there should be a text. Received: none")
    return texts


def by_vectors(data: DataSet, queries: np.ndarray, vectors: np.ndarray) -> list[list[str]]:
    """Returns the documents with the nearest unit vectors, for each query."""
    documents, found = [*data.documents], nearest(queries, vectors, _DEPTH + 1)
    return _without_themselves(data, [[documents[i] for i in row] for row in found.indices])


def by_words(data: DataSet) -> list[list[str]]:
    """Returns the best documents by BM25, of those that share a word with the query.

    With the parameters of the package bm25s. Words are runs of letters and digits, so it fits
    languages with spaces between words.
    """
    documents, k = [*data.documents], min(_DEPTH + 1, len(data.documents))
    index, split = bm25s.BM25(), {"stopwords": None, "token_pattern": r"(?u)\b\w+\b"}
    words = bm25s.tokenize([*data.documents.values()], show_progress=False, **split)
    if not words.vocab:
        raise InputError("BM25: the documents should have words. Received: none")
    index.index(words, show_progress=False)
    asked = bm25s.tokenize([*data.queries.values()], show_progress=False, **split)
    found, points = index.retrieve(asked, k=k, show_progress=False)
    # Sorted again, as those with equal points have no order.
    rows = (zip(*row, strict=True) for row in zip(points, found))
    ranked = (sorted((-x, i) for x, i in row if x > 0) for row in rows)
    return _without_themselves(data, [[documents[i] for _, i in row] for row in ranked])


def _without_themselves(data: DataSet, found: list[list[str]]) -> list[list[str]]:
    """Leaves out documents with the query's own id, as BEIR does."""
    pairs = zip(data.queries, found, strict=True)
    return [[name for name in row if name != query][:_DEPTH] for query, row in pairs]


def reranked(data: DataSet, found: Sequence[Sequence[str]], model: Any) -> list[list[str]]:
    """Orders the documents that a search has found by a model of kind reranking."""
    texts = [[data.documents[name] or " " for name in row] for row in found]  # some are empty
    answers = model.predict([*zip(data.queries.values(), texts, strict=True)])
    return [[row[i] for i in answer.order] for row, answer in zip(found, answers, strict=True)]


def scores(data: DataSet, found: Sequence[Sequence[str]]) -> pd.DataFrame:
    """Returns nDCG@10, MRR@10 and recall@100 of each query, times 100."""
    rows = []
    for (query, grades), names in zip(data.relevant.items(), found, strict=True):
        relevance = np.array([grades.get(name, 0.0) for name in names], np.float64)
        gain = ndcg(relevance, 10, np.array([*grades.values()]))
        recall = np.count_nonzero(relevance) / len(grades)
        rows.append((query, gain, reciprocal_rank(relevance, 10), recall))
    columns = ["query", "nDCG@10", "MRR@10", "recall@100"]
    return pd.DataFrame(rows, columns=columns).set_index("query") * 100.0


def summary(scores_of: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Returns a row per system: means over queries, with 95 % bootstrap intervals."""
    table = {name: own.apply(_interval) for name, own in scores_of.items()}
    return pd.DataFrame.from_dict(table, orient="index")


def _interval(values: pd.Series) -> str:
    said = f"{values.mean():.1f}"
    if values.nunique() < 2:
        return said
    options: dict[str, Any] = {"n_resamples": 1000, "method": "percentile", "rng": 0}
    ends = stats.bootstrap((values.to_numpy(),), np.mean, **options).confidence_interval
    return f"{said} ({ends.low:.1f} to {ends.high:.1f})"

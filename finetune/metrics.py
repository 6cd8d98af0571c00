"""Metrics: functions of predictions and gold labels, at best 1.

`Kind.metrics` lists the metrics of a kind of tasks by name.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from convbert.common.plugins import lazily

if TYPE_CHECKING:
    from convbert.finetune.kinds.base import Predicted

Metric = Callable[["Predicted", list], float]

CONSTANT = 1e-6  # scores that differ by less count as equal; of regression, a share of the range
_RARE = 50  # see `constant_answer`
_by_entity = lazily("seqeval.metrics.sequence_labeling:precision_recall_fscore_support")
_f1 = lazily("sklearn.metrics:f1_score")


def _of_library(name: str, **options: Any) -> Metric:
    """Makes a metric from the library function "module:function" of gold labels and answers."""
    function = lazily(name)
    return lambda predicted, gold: function(
        np.asarray(gold), np.asarray(predicted.answers), **options
    )


accuracy = _of_library("sklearn.metrics:accuracy_score")
binary_f1 = _of_library("sklearn.metrics:f1_score", zero_division=0)  # for the second of two labels
micro_f1 = _of_library("sklearn.metrics:f1_score", average="micro", zero_division=0)
matthews_corrcoef = _of_library("sklearn.metrics:matthews_corrcoef")


def macro_f1(predicted: Predicted, gold: list) -> float:
    """Returns the mean of the labels' F1, over those that occur in the labels or the answers."""
    right, answers = np.asarray(gold), np.asarray(predicted.answers)
    there = np.flatnonzero((right | answers).any(0)).tolist() if right.ndim == 2 else []
    return _f1(right, answers, labels=there or None, average="macro", zero_division=0)


def _correlation(name: str) -> Metric:
    """Makes a metric from the correlation "module:function" of two or more numbers."""
    function = lazily(name)
    return lambda predicted, gold: (
        function(gold, predicted.answers)[0] if len(gold) > 1 else math.nan
    )


pearson = _correlation("scipy.stats:pearsonr")
spearman = _correlation("scipy.stats:spearmanr")


def of_rankings(score: Callable[[np.ndarray, int], float], k: int) -> Metric:
    """Makes a metric of rankings: the mean of `score` over queries with a relevant candidate.

    `score` takes the relevance of a query's candidates, the best one by the answers first, and k.
    Of equal scores, the least relevant one comes first.
    """

    def metric(predicted: Predicted, gold: list) -> float:
        pairs = zip(map(np.array, predicted.answers), map(np.array, gold), strict=True)
        found = [score(y[np.lexsort((y, -scores))], k) for scores, y in pairs if y.any()]
        return float(np.mean(found)) if found else math.nan

    return metric


def reciprocal_rank(relevance: np.ndarray, k: int) -> float:
    """Returns 1 / rank of the first relevant candidate among the first k, or 0."""
    (found,) = np.nonzero(relevance[:k])
    return 1.0 / (1.0 + found[0]) if len(found) else 0.0


def ndcg(relevance: np.ndarray, k: int, judged: np.ndarray | None = None) -> float:
    """Returns nDCG of the first k with linear gains, as trec_eval's ndcg_cut.

    `judged` has the relevance of all candidates, by default those that are ranked.
    """
    best = np.sort(relevance if judged is None else judged)[::-1]
    gain, most = (
        of[:k] @ (1.0 / np.log2(np.arange(2, 2 + len(of[:k])))) for of in (relevance, best)
    )
    return float(gain / most)


def token_accuracy(predicted: Predicted, gold: list) -> float:
    """Returns the share of words with the correct tag."""
    pairs = zip(itertools.chain(*gold), itertools.chain(*predicted.answers), strict=True)
    right = [one == other for one, other in pairs]
    return float(np.mean(right)) if right else math.nan


def _of_entities(name: str) -> Metric:
    """Makes a metric of whole entity spans, from tags such as B-PER and I-PER."""
    function = lazily(f"seqeval.metrics:{name}")
    return lambda predicted, gold: function(*_tags(predicted, gold), zero_division=0)


entity_f1 = _of_entities("f1_score")
entity_precision = _of_entities("precision_score")
entity_recall = _of_entities("recall_score")


def by_entity(predicted: Predicted, gold: list) -> dict[str, dict[str, float]]:
    """Returns entity type -> precision, recall and f1 of spans, times 100, and support."""
    right, answers = _tags(predicted, gold)
    found = _by_entity(right, answers, average=None, zero_division=0)
    there = {tag[2:] for tags in (*right, *answers) for tag in tags if tag[1:2] == "-"}
    rows = {}
    for name, (*shares, support) in zip(sorted(there), zip(*found)):
        rows[name] = dict(zip(("precision", "recall", "f1"), (100.0 * float(x) for x in shares)))
        rows[name]["support"] = int(support)
    return rows


def _tags(predicted: Predicted, gold: list) -> tuple[list[list[str]], list[list[str]]]:
    labels = predicted.task.labels
    sides = (gold, predicted.answers)
    right, answers = ([[labels[tag] for tag in tags] for tags in side] for side in sides)
    return right, answers


def constant_answer(answers: Sequence, gold: Sequence) -> str | None:
    """Returns a warning if nearly all answers are the same, else None.

    Nearly all: other answers are fewer than one in `_RARE` of the other gold answers, if any.
    """
    if len(answers) < 2:
        return None
    (answer, same), n = collections.Counter(map(repr, answers)).most_common(1)[0], len(answers)
    others = sum(repr(right) != answer for right in gold)
    if not others or (same < n and _RARE * (n - same) > others):
        return None
    return f"{'every prediction' if same == n else f'{same:,} of {n:,} predictions'} is {answer}"

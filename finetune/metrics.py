"""Metrics: functions of a task, gold labels and answers, one item per example; 1 is the best.

The kinds of task say which are theirs and under which names (`Kind.metrics`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plugins import lazily

if TYPE_CHECKING:
    from finetune.task import Task

Metric = Callable[["Task", list, Sequence], float]

_by_label = lazily("sklearn.metrics:precision_recall_fscore_support")
_by_entity = lazily("seqeval.metrics.sequence_labeling:precision_recall_fscore_support")
_roc_auc = lazily("sklearn.metrics:roc_auc_score")
_pearsonr = lazily("scipy.stats:pearsonr")
_spearmanr = lazily("scipy.stats:spearmanr")


def _of_library(name: str, **options: Any) -> Metric:
    """The metric "module:function" of gold labels and answers."""
    function = lazily(name)
    return lambda task, gold, answers: function(gold, answers, **options)


accuracy = _of_library("sklearn.metrics:accuracy_score")
binary_f1 = _of_library("sklearn.metrics:f1_score", zero_division=0)  # of the second of two labels
macro_f1 = _of_library("sklearn.metrics:f1_score", average="macro", zero_division=0)
precision = _of_library("sklearn.metrics:precision_score", zero_division=0)  # of the second label
recall = _of_library("sklearn.metrics:recall_score", zero_division=0)
macro_precision = _of_library("sklearn.metrics:precision_score", average="macro", zero_division=0)
macro_recall = _of_library("sklearn.metrics:recall_score", average="macro", zero_division=0)
micro_f1 = _of_library("sklearn.metrics:f1_score", average="micro", zero_division=0)
micro_precision = _of_library("sklearn.metrics:precision_score", average="micro", zero_division=0)
micro_recall = _of_library("sklearn.metrics:recall_score", average="micro", zero_division=0)
mae = _of_library("sklearn.metrics:mean_absolute_error")
rmse = _of_library("sklearn.metrics:root_mean_squared_error")
matthews_corrcoef = _of_library("sklearn.metrics:matthews_corrcoef")


def by_label(gold: list, answers: Sequence, labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Label -> precision, recall and f1, times 100, and support; of places among `labels`."""
    places = range(len(labels))
    columns = _by_label(gold, answers, labels=places, zero_division=0)
    return {label: _row(*(column[i] for column in columns)) for i, label in enumerate(labels)}


def by_entity(task: Task, gold: list, answers: Sequence) -> dict[str, dict[str, float]]:
    """Type of entity -> the same of whole spans of tags such as B-PER and I-PER."""
    found = _by_entity(_named(task, gold), _named(task, answers), average=None, zero_division=0)
    types = sorted({tag[2:] for tag in task.labels if tag[1:2] == "-"})
    there = {tag[2:] for tags in (*_named(task, gold), *_named(task, answers)) for tag in tags}
    return {name: _row(*row) for name, row in zip(sorted(there & {*types}), zip(*found))}


def _row(precision: float, recall: float, f1: float, support: int) -> dict[str, float]:
    scores = {"precision": precision, "recall": recall, "f1": f1}
    return {name: 100.0 * float(value) for name, value in scores.items()} | {
        "support": int(support)
    }


def _named(task: Task, sentences: Sequence) -> list[list[str]]:
    return [[task.labels[tag] for tag in tags] for tags in sentences]


def pearson(task: Task, gold: list, answers: Sequence) -> float:
    """Pearson's correlation coefficient."""
    return _pearsonr(gold, answers)[0] if len(gold) > 1 else float("nan")


def spearman(task: Task, gold: list, answers: Sequence) -> float:
    """Spearman's rank correlation coefficient."""
    return _spearmanr(gold, answers)[0] if len(gold) > 1 else float("nan")


def token_accuracy(task: Task, gold: list, answers: Sequence) -> float:
    """Share of words whose tag is right."""
    flat = [list(itertools.chain.from_iterable(sentences)) for sentences in (gold, answers)]
    return accuracy(task, *flat) if flat[0] else math.nan


def roc_auc(gold: list, shares: np.ndarray) -> float:
    """Area under the ROC curve; of more than two labels the mean of each against the others.

    Args:
        gold: labels, 0 to L - 1.
        shares: probabilities [n, L].
    """
    if len({*gold}) < shares.shape[1]:  # of a label that is not there it is undefined
        return float("nan")
    if shares.shape[1] == 2:
        return _roc_auc(gold, shares[:, 1])
    return _roc_auc(gold, shares, multi_class="ovr")


def roc_auc_of_each(gold: np.ndarray, scores: np.ndarray) -> float:
    """Mean area under the ROC curve of labels that apply or not, bool [n, L], by scores [n, L]."""
    if np.any(np.all(gold == gold[:1], axis=0)):  # of a label without contrast it is undefined
        return float("nan")
    return _roc_auc(gold, scores, average="macro")


def _of_entities(name: str) -> Metric:
    """A metric of whole spans of tags such as B-PER and I-PER."""
    function = lazily(f"seqeval.metrics:{name}")

    def metric(task: Task, gold: list, answers: Sequence) -> float:
        return function(_named(task, gold), _named(task, answers), zero_division=0)

    return metric


entity_f1 = _of_entities("f1_score")
entity_precision = _of_entities("precision_score")
entity_recall = _of_entities("recall_score")

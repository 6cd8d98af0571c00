"""Metrics: functions of a task, gold labels and answers, one item per example; 1 is the best.

The kinds of task say which are theirs and under which names (`Kind.metrics`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plugins import lazily

if TYPE_CHECKING:
    from finetune.task import Task

_entity_f1 = lazily("seqeval.metrics:f1_score")
_pearsonr = lazily("scipy.stats:pearsonr")
_spearmanr = lazily("scipy.stats:spearmanr")


def _of_library(name: str, **options: Any) -> Callable[[Task, list, Sequence], float]:
    """The metric "module:function" of gold labels and answers."""
    function = lazily(name)
    return lambda task, gold, answers: function(gold, answers, **options)


accuracy = _of_library("sklearn.metrics:accuracy_score")
binary_f1 = _of_library("sklearn.metrics:f1_score", zero_division=0)  # of the second of two labels
macro_f1 = _of_library("sklearn.metrics:f1_score", average="macro", zero_division=0)
matthews_corrcoef = _of_library("sklearn.metrics:matthews_corrcoef")


def pearson(task: Task, gold: list, answers: Sequence) -> float:
    """Pearson's correlation coefficient."""
    return _pearsonr(gold, answers)[0] if len(gold) > 1 else float("nan")


def spearman(task: Task, gold: list, answers: Sequence) -> float:
    """Spearman's rank correlation coefficient."""
    return _spearmanr(gold, answers)[0] if len(gold) > 1 else float("nan")


def token_accuracy(task: Task, gold: list, answers: Sequence) -> float:
    """Share of words whose tag is right."""
    flat = [list(itertools.chain.from_iterable(sentences)) for sentences in (gold, answers)]
    return accuracy(task, *flat)


def entity_f1(task: Task, gold: list, answers: Sequence) -> float:
    """F1 of whole spans of tags such as B-PER and I-PER."""

    def named(sentences: Sequence) -> list[list[str]]:
        return [[task.labels[tag] for tag in tags] for tags in sentences]

    return _entity_f1(named(gold), named(answers), zero_division=0)

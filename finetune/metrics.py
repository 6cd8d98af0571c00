"""Metrics: functions of a task, gold labels and answers, one item per example; 1 is the best.

The kinds of task say which are theirs and under which names (`Kind.metrics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from finetune.task import Task


def accuracy(task: Task, gold: list, answers: Sequence) -> float:
    """Share of answers that are right."""
    from sklearn.metrics import accuracy_score

    return accuracy_score(gold, answers)


def binary_f1(task: Task, gold: list, answers: Sequence) -> float:
    """F1 of the second of two labels."""
    from sklearn.metrics import f1_score

    return f1_score(gold, answers, pos_label=1, average="binary", zero_division=0)


def macro_f1(task: Task, gold: list, answers: Sequence) -> float:
    """Mean of the F1 of each label."""
    from sklearn.metrics import f1_score

    return f1_score(gold, answers, average="macro", zero_division=0)


def matthews_corrcoef(task: Task, gold: list, answers: Sequence) -> float:
    """Matthews' correlation coefficient."""
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(gold, answers)


def pearson(task: Task, gold: list, answers: Sequence) -> float:
    """Pearson's correlation coefficient."""
    from scipy.stats import pearsonr

    return pearsonr(gold, answers)[0] if len(gold) > 1 else np.nan


def spearman(task: Task, gold: list, answers: Sequence) -> float:
    """Spearman's rank correlation coefficient."""
    from scipy.stats import spearmanr

    return spearmanr(gold, answers)[0] if len(gold) > 1 else np.nan


def token_accuracy(task: Task, gold: list, answers: Sequence) -> float:
    """Share of words whose tag is right."""
    flat = [[tag for tags in sentences for tag in tags] for sentences in (gold, answers)]
    return accuracy(task, *flat)


def entity_f1(task: Task, gold: list, answers: Sequence) -> float:
    """F1 of whole spans of tags such as B-PER and I-PER."""
    from seqeval.metrics import f1_score

    named = [
        [[task.labels[i] for i in tags] for tags in sentences] for sentences in (gold, answers)
    ]
    return f1_score(*named, zero_division=0)

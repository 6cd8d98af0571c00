"""Metrics: functions of what was predicted and of the gold labels of the examples; 1 is the best.

The kinds of task say which are theirs and under which names (`Kind.metrics`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from common.plugins import lazily

if TYPE_CHECKING:
    from finetune.kinds.predicted import Predicted

Metric = Callable[["Predicted", list], float]
UNDEFINED = {"roc_auc": "a label applies to none or to all of the examples, or nothing is ranked"}

_by_label = lazily("sklearn.metrics:precision_recall_fscore_support")
_by_entity = lazily("seqeval.metrics.sequence_labeling:precision_recall_fscore_support")
_roc_auc = lazily("sklearn.metrics:roc_auc_score")
_softmax = lazily("scipy.special:softmax")
_pearsonr = lazily("scipy.stats:pearsonr")
_spearmanr = lazily("scipy.stats:spearmanr")


def _of_library(name: str, **options: Any) -> Metric:
    """The metric "module:function" of gold labels and answers."""
    function = lazily(name)
    return lambda predicted, gold: function(
        np.asarray(gold), np.asarray(predicted.answers), **options
    )


accuracy = _of_library("sklearn.metrics:accuracy_score")
binary_f1 = _of_library("sklearn.metrics:f1_score", zero_division=0)  # of the second of two labels
macro_f1 = _of_library("sklearn.metrics:f1_score", average="macro", zero_division=0)
micro_f1 = _of_library("sklearn.metrics:f1_score", average="micro", zero_division=0)
precision = _of_library("sklearn.metrics:precision_score", zero_division=0)  # of the second label
macro_precision = _of_library("sklearn.metrics:precision_score", average="macro", zero_division=0)
micro_precision = _of_library("sklearn.metrics:precision_score", average="micro", zero_division=0)
recall = _of_library("sklearn.metrics:recall_score", zero_division=0)
macro_recall = _of_library("sklearn.metrics:recall_score", average="macro", zero_division=0)
micro_recall = _of_library("sklearn.metrics:recall_score", average="micro", zero_division=0)
mae = _of_library("sklearn.metrics:mean_absolute_error")
rmse = _of_library("sklearn.metrics:root_mean_squared_error")
matthews_corrcoef = _of_library("sklearn.metrics:matthews_corrcoef")


def pearson(predicted: Predicted, gold: list) -> float:
    """Pearson's correlation coefficient."""
    return _pearsonr(gold, predicted.answers)[0] if len(gold) > 1 else math.nan


def spearman(predicted: Predicted, gold: list) -> float:
    """Spearman's rank correlation coefficient."""
    return _spearmanr(gold, predicted.answers)[0] if len(gold) > 1 else math.nan


def roc_auc(predicted: Predicted, gold: list) -> float:
    """Area under the ROC curve by `logits` [n, L]; NaN where only answers are known.

    Of labels of which any number applies, and of more than two, it is the mean of the labels', each
    against the others.
    """
    if "logits" not in predicted.outputs:
        return math.nan
    labels, logits = np.asarray(gold), np.asarray(predicted.outputs["logits"], np.float64)
    if labels.ndim == 2:  # of a label without contrast it is undefined
        alike = np.any(np.all(labels == labels[:1], axis=0))
        return math.nan if alike else _roc_auc(labels, logits, average="macro")
    if len(np.unique(labels)) < logits.shape[1]:
        return math.nan
    shares = _softmax(logits, axis=-1)
    return _roc_auc(labels, shares if logits.shape[1] > 2 else shares[:, 1], multi_class="ovr")


def token_accuracy(predicted: Predicted, gold: list) -> float:
    """Share of words whose tag is right."""
    pairs = zip(itertools.chain(*gold), itertools.chain(*predicted.answers), strict=True)
    right = [one == other for one, other in pairs]
    return float(np.mean(right)) if right else math.nan


def _of_entities(name: str) -> Metric:
    """A metric of whole spans of tags such as B-PER and I-PER."""
    function = lazily(f"seqeval.metrics:{name}")
    return lambda predicted, gold: function(*_tags(predicted, gold), zero_division=0)


entity_f1 = _of_entities("f1_score")
entity_precision = _of_entities("precision_score")
entity_recall = _of_entities("recall_score")


def by_label(predicted: Predicted, gold: list) -> dict[str, dict[str, float]]:
    """Label -> precision, recall and f1, times 100, and support."""
    labels, answers = predicted.task.labels, np.asarray(predicted.answers)
    found = _by_label(np.asarray(gold), answers, labels=range(len(labels)), zero_division=0)
    return {label: _row(*row) for label, row in zip(labels, zip(*found))}


def by_entity(predicted: Predicted, gold: list) -> dict[str, dict[str, float]]:
    """Type of entity -> the same of whole spans of tags such as B-PER and I-PER."""
    right, answers = _tags(predicted, gold)
    found = _by_entity(right, answers, average=None, zero_division=0)
    there = {tag[2:] for tags in (*right, *answers) for tag in tags if tag[1:2] == "-"}
    return {name: _row(*row) for name, row in zip(sorted(there), zip(*found))}


def _tags(predicted: Predicted, gold: list) -> tuple[list[list[str]], list[list[str]]]:
    labels = predicted.task.labels
    right, answers = (
        [[labels[tag] for tag in tags] for tags in each] for each in (gold, predicted.answers)
    )
    return right, answers


def _row(*values: float) -> dict[str, float]:
    scores = dict(zip(("precision", "recall", "f1"), (100.0 * float(v) for v in values)))
    return scores | {"support": int(values[-1])}

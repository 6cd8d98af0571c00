"""One of L labels for a text or a pair of texts."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from finetune import metrics
from finetune.kinds.base import Error
from finetune.kinds.predicted import (
    Predicted,
    confidence,
    constant_label,
    first_most_frequent,
    quoted,
)
from finetune.kinds.texts import Outputs, TextExample, TextHParams, TextKind
from finetune.labels import check_counts, label_index, warn_of_rare
from plugins import lazily
from settings import check_setting

if TYPE_CHECKING:
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

_head = lazily("model.heads.task:ClassificationHead")
_SHARE = {"check": (lambda value: 0 <= value < 1, "at least 0 and below 1")}
_WEIGHTS = {"check": (lambda value: all(w >= 0 for w in value.values()), "of numbers at least 0")}


@dataclasses.dataclass(frozen=True)
class ClassificationHParams(TextHParams):
    """Hyper-parameters of classification."""

    # Share of the probability that all labels get alike in training; 0: none.
    label_smoothing: float = field(default=0.0, metadata=_SHARE)
    # Label -> factor of its examples' losses, 1 where it is not named; with "loss_reduction" "mean"
    # the sum is divided by that of the factors.
    class_weights: dict[str, float] = field(default_factory=dict, metadata=_WEIGHTS)


class Classification(TextKind):
    """A softmax over the labels; answers are indices into `Task.labels`."""

    name = "classification"
    has_labels = True
    metrics: ClassVar = {
        "accuracy": metrics.accuracy,
        "f1": metrics.binary_f1,
        "macro_f1": metrics.macro_f1,
        "matthews_corrcoef": metrics.matthews_corrcoef,
        "precision": metrics.precision,
        "recall": metrics.recall,
        "macro_precision": metrics.macro_precision,
        "macro_recall": metrics.macro_recall,
        "roc_auc": None,
    }
    default_metrics = ("accuracy",)
    hparams = ClassificationHParams
    signatures = "classification"

    def check_metrics(self, task: Task) -> None:
        """See Kind.check_metrics: f1 is of two labels."""
        super().check_metrics(task)
        fits = len(task.labels) <= 2 or not {"f1", "precision", "recall"} & {*task.metrics}
        check_setting(task, fits, "metrics", "macro_f1 and the like of more than two labels")

    def metric(self, name: str, predicted: Predicted, gold: list) -> float:
        """See Kind.metric: roc_auc is of probabilities; NaN where only answers are known."""
        if name != "roc_auc":
            return super().metric(name, predicted, gold)
        if "logits" not in predicted.outputs:
            return math.nan
        return metrics.roc_auc(gold, probabilities(predicted.outputs["logits"]))

    def label(self, source: Source, where: str, value: Any) -> int:
        return label_index(source, where, value)

    def check_training(self, task: Task, place: str, examples: Sequence[TextExample]) -> None:
        counts = collections.Counter(task.labels[example.label] for example in examples)
        check_counts(task, place, counts)
        warn_of_rare(task, place, counts, task.labels[examples[0].label])

    def label_column(self, task: Task, labels: Sequence[int]) -> np.ndarray:
        """See TextKind.label_column: int32."""
        return np.array(labels, np.int32)

    def check_network(
        self, task: Task, hparams: ClassificationHParams, config: BackboneConfig
    ) -> None:
        """See Kind.check_network: weights are of labels that the task has."""
        super().check_network(task, hparams, config)
        fits = not task.labels or {*hparams.class_weights} <= {*task.labels}
        expectation = f"of the labels {', '.join(task.labels)}"
        check_setting(hparams, fits, "class_weights", expectation)
        fits = not (hparams.label_smoothing and task.untrained)  # or they would be trained
        check_setting(hparams, fits, "label_smoothing", "0 with labels that nothing trains")

    def head(self, task: Task, config: BackboneConfig, hparams: ClassificationHParams) -> Any:
        weights = None
        if hparams.class_weights:
            weights = [hparams.class_weights.get(label, 1.0) for label in task.labels]
        options = {"label_smoothing": hparams.label_smoothing, "class_weights": weights}
        return _head(len(task.labels), config, hparams.classifier, **options)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """The labels of highest `logits` [n, L]."""
        return np.argmax(outputs["logits"], axis=-1)

    def undefined(self, predicted: Predicted, scores: dict[str, float | None]) -> dict[str, str]:
        """See Kind.undefined: the area under the curve needs examples of all labels."""
        reasons = super().undefined(predicted, scores)
        there = {example.label for example in predicted.examples}
        missing = [name for i, name in enumerate(predicted.task.labels) if i not in there]
        if "roc_auc" in reasons and missing:
            reasons["roc_auc"] = f"no example has the label {missing[0]}"
        return reasons

    def collapsed(self, predicted: Predicted) -> str | None:
        return constant_label(predicted)

    def by_label(self, predicted: Predicted) -> dict[str, dict[str, float]]:
        gold = [example.label for example in predicted.examples]
        return metrics.by_label(gold, predicted.answers, predicted.task.labels)

    def constant(self, task: Task, examples: Sequence[TextExample]) -> tuple[str, str, list[int]]:
        best = first_most_frequent(collections.Counter(example.label for example in examples))
        return "most frequent label", task.labels[best], [best] * len(examples)

    def gold(self, task: Task, example: TextExample) -> str | None:
        """See Kind.gold: the label's name."""
        return None if example.label is None else task.labels[example.label]

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """{"prediction": label name, "probabilities": {label name: p}}."""
        labels = predicted.task.labels
        row = {"prediction": labels[predicted.answers[number]]}
        if "logits" in predicted.outputs:
            shares = probabilities(predicted.outputs["logits"][number])
            row["probabilities"] = dict(zip(labels, (round(float(p), 6) for p in shares)))
        return row

    def error(self, predicted: Predicted, number: int) -> Error | None:
        """The wrong labels of highest probability are the largest errors."""
        example, answer = predicted.examples[number], predicted.answers[number]
        if answer == example.label:
            return None
        known = "logits" in predicted.outputs
        shares = probabilities(predicted.outputs["logits"][number]) if known else None
        share, how_sure = confidence(shares, answer)
        labels = predicted.task.labels
        said = f"Predicted **{labels[answer]}**{how_sure}; it is **{labels[example.label]}**."
        return share, said + quoted(example.text_a, example.text_b)

    def answer_of(self, task: Task, values: Mapping[str, Any]) -> int:
        return task.labels.index(values["label"])

    def outputs_of(self, task: Task, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {"logits": columns["scores"]}

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        shares = dict(zip(labels, values["probabilities"]))
        return {"prediction": values["label"], "probabilities": shares}


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The probabilities that logits stand for, [..., L]."""
    from scipy.special import softmax

    return softmax(np.asarray(logits, np.float64), axis=-1)

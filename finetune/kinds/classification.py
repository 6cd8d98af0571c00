"""One of L labels for a text or a pair of texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from finetune import metrics
from finetune.kinds.base import Outputs
from finetune.kinds.predicted import Predicted
from finetune.kinds.texts import TextHParams, TextKind
from finetune.labels import label_index
from plugins import lazily
from settings import check_setting, within

if TYPE_CHECKING:
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

_head = lazily("model.heads.task:ClassificationHead")
_softmax = lazily("scipy.special:softmax")
_WEIGHTS = {"check": (lambda value: all(w >= 0 for w in value.values()), "of numbers at least 0")}


@dataclasses.dataclass(frozen=True)
class ClassificationHParams(TextHParams):
    """Hyper-parameters of classification."""

    # Share of the probability that all labels get alike in training; 0: none.
    label_smoothing: float = field(default=0.0, metadata=within(0, 1))
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
        "roc_auc": metrics.roc_auc,
    }
    default_metrics = ("accuracy",)
    hparams = ClassificationHParams
    signatures = "classification"

    def check(self, task: Task) -> None:
        super().check(task)
        fits = len(task.labels) <= 2 or not {"f1", "precision", "recall"} & {*task.metrics}
        check_setting(task, fits, "metrics", "macro_f1 and the like of more than two labels")

    def label(self, source: Source, where: Any, value: Any) -> int:
        return label_index(source, where, value)

    def label_column(self, task: Task, labels: Sequence[int]) -> np.ndarray:
        return np.array(labels, np.int32)

    def check_hparams(
        self, task: Task, hparams: ClassificationHParams, config: BackboneConfig
    ) -> None:
        super().check_hparams(task, hparams, config)
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

    def probabilities(self, predicted: Predicted, number: int) -> np.ndarray | None:
        if "logits" not in predicted.outputs:
            return None
        return _softmax(np.asarray(predicted.outputs["logits"][number], np.float64))

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> int:
        return list(labels).index(values["label"])

"""A number for a text or a pair of texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError
from finetune import metrics
from finetune.kinds.base import Baseline, Outputs
from finetune.kinds.predicted import Predicted
from finetune.kinds.texts import TextExample, TextHParams, TextKind
from plugins import lazily

if TYPE_CHECKING:
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

# Scores closer together than this share of the task's range are constant.
_CONSTANT = 1e-6
_MOST = (0.01, 0.99)  # quantiles; what lies outside does not make a run vary
_head = lazily("model.heads.task:RegressionHead")


class Regression(TextKind):
    """The network learns a share of `Task.label_range`; answers are in the unit of the labels.

    They are not clipped and may lie outside `label_range`; so they are scored, and so an exported
    model answers.
    """

    name = "regression"
    metrics: ClassVar = {
        "pearson": metrics.pearson,
        "spearman": metrics.spearman,
        "mae": metrics.mae,
        "rmse": metrics.rmse,
    }
    lower_is_better = ("mae", "rmse")
    default_metrics = ("spearman", "pearson")
    signatures = "regression"

    def label(self, source: Source, where: Any, value: Any) -> float | None:
        task = source.task
        low, high = task.label_range
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if source.is_test and number == -1.0 < low:
            return None  # what tensorflow-datasets writes for a label that is hidden
        if not low <= number <= high:
            raise InputError(
                f"the label should be a number from {low:g} to {high:g} (`label_range` of "
                f"task {task.name}), with a decimal point. Received: {value!r:.60}"
            )
        return number

    def label_column(self, task: Task, labels: Sequence[float]) -> np.ndarray:
        """float32, scaled to [0, 1]."""
        low, high = task.label_range
        return ((np.array(labels, np.float64) - low) / (high - low)).astype(np.float32)

    def head(self, task: Task, config: BackboneConfig, hparams: TextHParams) -> Any:
        return _head(config, hparams.classifier)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """`score` [n], a share of the label range, in the unit of the labels."""
        low, high = task.label_range
        return low + (high - low) * np.asarray(outputs["score"], np.float64)

    def collapsed(self, predicted: Predicted) -> str | None:
        scores, (low, high) = np.array(predicted.answers, np.float64), predicted.task.label_range
        if not np.all(np.isfinite(scores)):
            return "a predicted score is not finite"
        most, allowed = np.quantile(scores, _MOST, method="nearest"), _CONSTANT * (high - low)
        if len(scores) < 2 or np.ptp(most) > allowed:
            return None
        which = "every prediction" if np.ptp(scores) <= allowed else "all but 2 % of predictions"
        return f"{which} is {most[0]:.4g}"

    def baselines(self, task: Task, examples: Sequence[TextExample]) -> list[Baseline]:
        mean = float(np.mean([example.label for example in examples]))
        return [("mean", mean, [mean] * len(examples))]

    def named(self, labels: Sequence[str], answer: float) -> float | None:
        """JSON has no word for what is not a number."""
        return float(answer) if math.isfinite(answer) else None

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> float:
        return float(values["score"])

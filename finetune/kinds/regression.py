"""A number for a text or a pair of texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError, warn
from finetune import metrics
from finetune.kinds.base import Error
from finetune.kinds.predicted import Predicted, quoted
from finetune.kinds.texts import Outputs, TextExample, TextKind
from plugins import lazily

if TYPE_CHECKING:
    from finetune.hparams import FinetuningHParams
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

    def label(self, source: Source, where: str, value: Any) -> float | None:
        task = source.task
        low, high = task.label_range
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if source.split in task.test and number == -1.0 < low:
            return None  # what tensorflow-datasets writes for a label that is hidden
        if not low <= number <= high:
            comma = isinstance(value, str) and value.strip().replace(",", "", 1).isdecimal()
            point = ", with a decimal point" if comma and "," in value else ""
            raise InputError(
                f"{where}: the label should be a number from {low:g} to {high:g} (`label_range` of "
                f"task {task.name}{point}). Received: {value!r:.60}"
            )
        return number

    def check_training(self, task: Task, place: str, examples: Sequence[TextExample]) -> None:
        found = {example.label for example in examples}
        if len(found) == 1 and len(examples) > 1:
            warn(f"{place}: every label is {found.pop():g}; there is nothing to learn")

    def label_column(self, task: Task, labels: Sequence[float]) -> np.ndarray:
        """See TextKind.label_column: float32, scaled to [0, 1]."""
        low, high = task.label_range
        return ((np.array(labels, np.float64) - low) / (high - low)).astype(np.float32)

    def head(self, task: Task, config: BackboneConfig, hparams: FinetuningHParams) -> Any:
        return _head(config, hparams.classifier)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """`score` [n], a share of the label range, in the unit of the labels."""
        low, high = task.label_range
        return low + (high - low) * np.asarray(outputs["score"], np.float64)

    def undefined(self, predicted: Predicted, scores: dict[str, float | None]) -> dict[str, str]:
        """See Kind.undefined: correlations need labels that differ."""
        gold = [example.label for example in predicted.examples]
        reasons = super().undefined(predicted, scores)
        if len(gold) < 2:
            return dict.fromkeys(reasons, "there is one example only")
        if len(set(gold)) == 1:
            return dict.fromkeys(reasons, f"every gold label is {gold[0]:.4g}")
        return reasons

    def collapsed(self, predicted: Predicted) -> str | None:
        scores, (low, high) = np.array(predicted.answers, np.float64), predicted.task.label_range
        if not np.all(np.isfinite(scores)):
            return "a predicted score is not finite"
        most, allowed = np.quantile(scores, _MOST, method="nearest"), _CONSTANT * (high - low)
        if len(scores) < 2 or np.ptp(most) > allowed:
            return None
        which = "every prediction" if np.ptp(scores) <= allowed else "all but 2 % of predictions"
        return f"{which} is {most[0]:.4g}"

    def constant(
        self, task: Task, examples: Sequence[TextExample]
    ) -> tuple[str, float, list[float]]:
        mean = float(np.mean([example.label for example in examples]))
        return "mean", mean, [mean] * len(examples)

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """{"prediction": number in the unit of the labels}."""
        answer = predicted.answers[number]
        # JSON has no word for what is not a number.
        return {"prediction": float(answer) if math.isfinite(answer) else None}

    def error(self, predicted: Predicted, number: int) -> Error | None:
        """The largest differences are the largest errors."""
        example, answer = predicted.examples[number], predicted.answers[number]
        if answer == example.label:
            return None
        difference = abs(answer - example.label)
        said = f"Predicted **{answer:.2f}**; it is **{example.label:.2f}**."
        text = said + quoted(example.text_a, example.text_b)
        return (difference if math.isfinite(difference) else math.inf), text

    def answer_of(self, task: Task, values: Mapping[str, Any]) -> float:
        return float(values["score"])

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        return {"prediction": values["score"]}

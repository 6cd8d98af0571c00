"""Any number of L labels for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError
from finetune import metrics
from finetune.kinds.base import Outputs
from finetune.kinds.predicted import Predicted
from finetune.kinds.texts import TextHParams, TextKind
from finetune.labels import label_index
from plugins import lazily
from settings import check_setting

if TYPE_CHECKING:
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

_head = lazily("model.heads.task:MultiLabelHead")
_sigmoid = lazily("scipy.special:expit")
SEPARATOR = "|"  # of labels in one cell of a table
_CELLS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}

# Of each label whether it applies, in the order of `Task.labels`; a label of an example, an answer.
Chosen = tuple[bool, ...]


class MultiLabel(TextKind):
    """A sigmoid for each label; a label applies from a probability of one half on."""

    name = "multi_label"
    list_roles = ("label",)  # a binary column for each label
    has_labels = True
    least_labels = 0  # a column may be constant
    metrics: ClassVar = {
        "micro_f1": metrics.micro_f1,
        "macro_f1": metrics.macro_f1,
        "accuracy": metrics.accuracy,
        "micro_precision": metrics.micro_precision,
        "micro_recall": metrics.micro_recall,
        "roc_auc": metrics.roc_auc,
    }
    default_metrics = ("micro_f1", "macro_f1", "accuracy")
    signatures = "multi_label"

    def check(self, task: Task) -> None:
        super().check(task)
        named = task.named_labels
        for split in task.files:
            columns = task.columns_of(split).get("label")
            if isinstance(columns, tuple):
                moved = [own for own, name in zip(columns, named) if own != name and own in named]
                fits = len({*columns}) == len(columns) == len(named) > 1 and not moved
                wanted = f"two columns or more for `label`, each once, as {', '.join(named)}"
                check_setting(task, fits, "columns", wanted)

    def label_values(self, row: dict[str, Any]) -> Any:
        return names_in(row[self.target])

    def label(self, source: Source, where: Any, value: Any) -> Chosen | None:
        """A list of names, a text of names with `|` between, or 0 and 1."""
        columns = source.columns["label"]
        if isinstance(columns, tuple):
            return _applying(source, columns, value)
        names = names_in(value)
        if not isinstance(names, list):
            raise InputError(
                f"`label` should be a list of labels, or labels with {SEPARATOR!r} between"
                f" them. Received: {value!r:.60}"
            )
        places = [label_index(source, where, name) for name in names]
        return tuple(place in places for place in range(len(source.task.labels)))

    def label_column(self, task: Task, labels: Sequence[Chosen]) -> np.ndarray:
        """float32 [n, L] of zeros and ones."""
        return np.array(labels, np.float32).reshape(len(labels), len(task.labels))

    def head(self, task: Task, config: BackboneConfig, hparams: TextHParams) -> Any:
        return _head(len(task.labels), config, hparams.classifier)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """The labels of `logits` [n, L] of at least 0."""
        return np.asarray(outputs["logits"]) >= 0.0

    def named(self, labels: Sequence[str], answer: Sequence[bool]) -> list[str]:
        return [label for label, applies in zip(labels, answer, strict=True) if applies]

    def probabilities(self, predicted: Predicted, number: int) -> np.ndarray | None:
        if "logits" not in predicted.outputs:
            return None
        return _sigmoid(np.asarray(predicted.outputs["logits"][number], np.float64))

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> list[bool]:
        return [bool(value) for value in values["chosen"]]


def _applying(source: Source, columns: tuple, cells: list) -> Chosen | None:
    """Whether each label applies, by cells of 0 and 1; None where the test split hides them."""
    if source.is_test and all(cell in ("", None) for cell in cells):
        return None
    cells = [*cells, *[""] * (len(columns) - len(cells))]  # as the reader of tables leaves them out
    for column, cell in zip(columns, cells, strict=True):
        if str(cell).strip().lower() not in _CELLS:
            raise InputError(f"{column!r} should be 0 or 1. Received: {cell!r:.60}")
    return tuple(_CELLS[str(cell).strip().lower()] for cell in cells)


def names_in(value: Any) -> Any:
    """The names of a cell as a list; what is neither a list nor a text as it is."""
    if not isinstance(value, str):
        return list(value) if isinstance(value, tuple) else value
    return [name.strip() for name in value.split(SEPARATOR)] if value.strip() else []

"""Any number of L labels for a text or a pair of texts."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError, warn
from finetune import metrics
from finetune.kinds.base import Error
from finetune.kinds.predicted import Predicted, constant_answer, quoted
from finetune.kinds.texts import Outputs, TextExample, TextHParams, TextKind
from finetune.labels import check_counts, label_index
from plugins import lazily
from settings import check_setting

if TYPE_CHECKING:
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

_head = lazily("model.heads.task:MultiLabelHead")
SEPARATOR = "|"  # of labels in one cell of a table
_CELLS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}

# Of each label whether it applies, in the order of `Task.labels`; a label of an example, an answer.
Chosen = tuple[bool, ...]


class MultiLabel(TextKind):
    """A sigmoid for each label; a label applies from a probability of one half on."""

    name = "multi_label"
    list_roles = ("label",)  # a binary column for each label
    has_labels = True
    metrics: ClassVar = {
        "micro_f1": metrics.micro_f1,
        "macro_f1": metrics.macro_f1,
        "accuracy": metrics.accuracy,
        "micro_precision": metrics.micro_precision,
        "micro_recall": metrics.micro_recall,
        "roc_auc": None,
    }
    default_metrics = ("micro_f1", "macro_f1", "accuracy")
    signatures = "multi_label"

    def check_columns(self, task: Task, split: str) -> None:
        """See Kind.check_columns: columns of labels are those of the labels, in their order."""
        super().check_columns(task, split)
        columns = task.columns_of(split).get("label")
        if not isinstance(columns, tuple):
            return
        named = task.labels or self.label_names(task)
        moved = [own for own, name in zip(columns, named) if own != name and own in named]
        fits = len({*columns}) == len(columns) == len(named) > 1 and not moved
        wanted = f"two columns or more for `label`, each once, in the order of {', '.join(named)}"
        check_setting(task, fits, "columns", wanted)

    def label_names(self, task: Task) -> tuple[str, ...]:
        """See Kind.label_names: those of binary columns."""
        columns = task.columns.get("label")
        names = columns if isinstance(columns, tuple) else ()
        return names if all(isinstance(name, str) for name in names) else ()

    def label_values(self, row: dict[str, Any]) -> Any:
        return names_in(row[self.target])

    def label(self, source: Source, where: str, value: Any) -> Chosen | None:
        """See TextKind.label: a list of names, a text of names with `|` between, or 0 and 1."""
        columns = source.columns["label"]
        if isinstance(columns, tuple):
            return _applying(source, where, columns, value)
        names = names_in(value)
        if not isinstance(names, list):
            raise InputError(
                f"{where}: `label` should be a list of labels, or labels with {SEPARATOR!r} between"
                f" them. Received: {value!r:.60}"
            )
        places = [label_index(source, where, name) for name in names]
        return tuple(place in places for place in range(len(source.task.labels)))

    def check_training(self, task: Task, place: str, examples: Sequence[TextExample]) -> None:
        named = (names_of(task, example.label) for example in examples)
        counts = collections.Counter(itertools.chain.from_iterable(named))
        check_counts(task, place, counts, least=0)  # a column may be constant
        for said, count in (("none", 0), ("all", len(examples))):
            if names := [name for name in task.labels if counts[name] == count]:
                warn(f"{place}: {said} of the {len(examples):,} examples have {', '.join(names)}")

    def label_column(self, task: Task, labels: Sequence[Chosen]) -> np.ndarray:
        """See TextKind.label_column: float32 [n, L] of zeros and ones."""
        return np.array(labels, np.float32).reshape(len(labels), len(task.labels))

    def head(self, task: Task, config: BackboneConfig, hparams: TextHParams) -> Any:
        return _head(len(task.labels), config, hparams.classifier)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """The labels of `logits` [n, L] of at least 0."""
        return np.asarray(outputs["logits"]) >= 0.0

    def metric(self, name: str, predicted: Predicted, gold: list) -> float:
        """See Kind.metric: roc_auc is the mean of the labels'; NaN where only answers are known."""
        if name != "roc_auc":
            return self.metrics[name](predicted.task, np.array(gold), np.array(predicted.answers))
        if "logits" not in predicted.outputs:
            return math.nan
        return metrics.roc_auc_of_each(np.array(gold), predicted.outputs["logits"])

    def undefined(self, predicted: Predicted, scores: dict[str, float | None]) -> dict[str, str]:
        """See Kind.undefined: the area under the curve needs examples with and without a label."""
        reasons = super().undefined(predicted, scores)
        share = np.mean([example.label for example in predicted.examples], axis=0)
        same = [name for name, own in zip(predicted.task.labels, share) if own in (0.0, 1.0)]
        if "roc_auc" in reasons and same:
            reasons["roc_auc"] = f"all examples are alike in the label {same[0]}"
        return reasons

    def collapsed(self, predicted: Predicted) -> str | None:
        answers = [tuple(answer) for answer in predicted.answers]
        gold = [tuple(example.label) for example in predicted.examples]
        return constant_answer(
            answers, gold, lambda chosen: ", ".join(names_of(predicted.task, chosen)) or "none"
        )

    def by_label(self, predicted: Predicted) -> dict[str, dict[str, float]]:
        gold = np.array([example.label for example in predicted.examples])
        return metrics.by_label(gold, np.array(predicted.answers), predicted.task.labels)

    def constant(self, task: Task, examples: Sequence[TextExample]) -> tuple[str, Any, list]:
        """See Kind.constant: the set of labels that occurs most often."""
        counts = collections.Counter(example.label for example in examples)
        best = max(sorted(counts), key=counts.__getitem__)
        return "most frequent set", names_of(task, best), [list(best)] * len(examples)

    def gold(self, task: Task, example: TextExample) -> list[str] | None:
        """See Kind.gold: the labels' names."""
        return None if example.label is None else names_of(task, example.label)

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """{"prediction": [label names], "probabilities": {label name: p}}."""
        task = predicted.task
        row: dict[str, Any] = {"prediction": names_of(task, predicted.answers[number])}
        if "logits" in predicted.outputs:
            shares = probabilities(predicted.outputs["logits"][number])
            row["probabilities"] = dict(zip(task.labels, (round(float(p), 6) for p in shares)))
        return row

    def error(self, predicted: Predicted, number: int) -> Error | None:
        """The examples of most wrong labels are the largest errors."""
        example, answer = predicted.examples[number], predicted.answers[number]
        wrong = sum(one != other for one, other in zip(example.label, answer, strict=True))
        if not wrong:
            return None
        said, right = (
            ", ".join(names_of(predicted.task, chosen)) or "none"
            for chosen in (answer, example.label)
        )
        quotation = quoted(example.text_a, example.text_b)
        return float(wrong), f"Predicted **{said}**; right is **{right}**.{quotation}"

    def answer_of(self, task: Task, values: Mapping[str, Any]) -> list[bool]:
        return [bool(value) for value in values["chosen"]]

    def outputs_of(self, task: Task, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {"logits": columns["scores"]}

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        named = [label for label, chosen in zip(labels, values["chosen"]) if chosen]
        return {"prediction": named, "probabilities": dict(zip(labels, values["probabilities"]))}


def _applying(source: Source, where: str, columns: tuple, cells: list) -> Chosen | None:
    """Whether each label applies, by cells of 0 and 1; None where the test split hides them."""
    if source.is_test and all(cell in ("", None) for cell in cells):
        return None
    cells = [*cells, *[""] * (len(columns) - len(cells))]  # as the reader of tables leaves them out
    for column, cell in zip(columns, cells, strict=True):
        if str(cell).strip().lower() not in _CELLS:
            raise InputError(f"{where}: {column!r} should be 0 or 1. Received: {cell!r:.60}")
    return tuple(_CELLS[str(cell).strip().lower()] for cell in cells)


def names_in(value: Any) -> Any:
    """The names of a cell as a list; what is neither a list nor a text as it is."""
    if not isinstance(value, str):
        return list(value) if isinstance(value, tuple) else value
    return [name.strip() for name in value.split(SEPARATOR)] if value.strip() else []


def names_of(task: Task, chosen: Sequence[bool]) -> list[str]:
    """The names of the labels that apply."""
    return [label for label, applies in zip(task.labels, chosen, strict=True) if applies]


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The probabilities that logits stand for, one by one."""
    from scipy.special import expit

    return expit(np.asarray(logits, np.float64))

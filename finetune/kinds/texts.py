"""Tasks on a text or a pair of texts: one of L labels, any number of labels, or a number."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from convbert.common.errors import InputError
from convbert.common.files import write_text
from convbert.common.plugins import lazily
from convbert.common.settings import check_setting, one_of, present
from convbert.finetune import metrics
from convbert.finetune.hparams import FinetuningHParams
from convbert.finetune.kinds.base import Kind, Outputs, Predicted, label_index, register

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task
    from convbert.finetune.encoding import Split
    from convbert.finetune.task_files import SplitSource
    from convbert.model import BackboneConfig

_softmax = lazily("scipy.special:softmax")
_sigmoid = lazily("scipy.special:expit")
SEPARATOR = "|"  # between labels in a cell of a table
INPUTS = {"text_a": "text", "text_b": "text_pair"}  # role -> input of exported models

# True for each label that applies, in the order of `Task.labels`; as a label or an answer.
Chosen = tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class TextHParams(FinetuningHParams):
    """Hyper-parameters of tasks on texts."""

    double_unordered: bool = True  # symmetric pairs are trained in both orders
    # Layers on the text's vector: one, as in the original; or two, as in transformers' ConvBERT and
    # ELECTRA ("dense") or BERT ("pooler"), to which the model can be converted with its head.
    classifier: str = field(default="linear", metadata=one_of("linear", "dense", "pooler"))


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts, with a label."""

    id: str  # for GLUE's test files, the server's index
    text_a: str
    text_b: str | None
    # An index into `Task.labels`, a bool for each of them, or a number within `Task.label_range`;
    # None: unlabelled.
    label: int | tuple[bool, ...] | float | None


def texts_of(row: dict[str, Any], roles: Sequence[str], lenient: bool = False) -> dict[str, str]:
    """Returns the texts of a row by role; InputError for other values and empty texts."""
    texts = {role: row[role] for role in roles if role in row}
    for role, text in texts.items():
        if not isinstance(text, str) or not (text.strip() or lenient):
            raise InputError(f"`{role}` should be a non-empty text. Received: {text!r:.60}")
    return texts


class TextKind(Kind):
    """A label for a text or a pair; `shares` maps `logits` to probabilities."""

    formats: ClassVar = {"tsv": ".tsv", "csv": ".csv", "jsonl": ".jsonl"}
    needed, optional = ("text_a", "label"), ("text_b", "id")
    target = "label"
    hparams = TextHParams
    shaping = ("double_unordered",)
    fields: tuple[str, ...] = ("symmetric", "lenient")
    shortened = "cut (of two texts the longer one first)"
    shares: Callable[[np.ndarray], np.ndarray] | None = None
    make_head: Callable[[int, BackboneConfig, str], Any]  # of outputs, encoder, `classifier`
    encode = staticmethod(lazily("convbert.finetune.encoding:encode_texts"))

    def label(self, source: SplitSource, value: Any) -> Any:
        """The label of a value in a file, as `TextExample` has it."""
        raise NotImplementedError

    def label_column(self, task: Task, labels: Sequence) -> np.ndarray:
        """Returns the labels of n examples for the head's loss: [n] or [n, L]."""
        raise NotImplementedError

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """Returns the answer for every sequence, [n], from the head's predictions."""
        raise NotImplementedError

    def example(self, source: SplitSource, identity: str, row: dict) -> TextExample:
        texts = texts_of(row, ("text_a", "text_b"), source.task.lenient)
        value = row.get("label")
        hidden = source.is_test and (value is None or value == "")
        label = None if hidden else self.label(source, value)
        return TextExample(identity, texts["text_a"], texts.get("text_b"), label)

    def training_examples(self, task: Task, examples: list, hparams: TextHParams) -> list:
        """Adds the other order of symmetric pairs, as ELECTRA's finetune/classification."""
        if not (task.symmetric and hparams.double_unordered):
            return examples
        pairs = [(x, present(x.text_b)) for x in examples]
        swapped = [dataclasses.replace(x, text_a=second, text_b=x.text_a) for x, second in pairs]
        return [*examples, *swapped]

    def check_hparams(self, task: Task, hparams: Any, config: BackboneConfig) -> None:
        fits = hparams.classifier == "linear" or not config.summary_layer
        check_setting(hparams, fits, "classifier", "linear: such a backbone has its own layer")

    def head(self, task: Task, config: BackboneConfig, hparams: TextHParams) -> Any:
        return self.make_head(len(task.labels) or 1, config, hparams.classifier)

    def answers(self, task: Task, split: Split, outputs: Outputs, hparams: Any) -> list:
        return self.values(task, outputs).tolist()

    def probabilities(self, predicted: Predicted, number: int) -> np.ndarray | None:
        if self.shares is None or "logits" not in predicted.outputs:
            return None
        return self.shares(np.asarray(predicted.outputs["logits"][number], np.float64))

    def write_files(self, predicted: Predicted, folder: str, split: str) -> None:
        """Writes the answers to a GLUE test split in its server's format, SPLIT.tsv."""
        task = predicted.task
        if split not in task.test or not (task.tfds or "").startswith("glue/"):
            return
        low, high = task.label_range
        said = {
            x.id: task.labels[answer] if task.labels else f"{min(high, max(low, answer)):.3f}"
            for x, answer in zip(predicted.examples, predicted.answers)
        }
        ordered = sorted(said, key=lambda index: (len(index), index))  # 10 comes after 9
        lines = ["index\tprediction\n", *(f"{index}\t{said[index]}\n" for index in ordered)]
        write_text(os.path.join(folder, f"{split}.tsv"), "".join(lines))

    def request(self, task: Task, example: TextExample) -> dict[str, Any]:
        pair = {} if example.text_b is None else {"text_pair": example.text_b}
        return {"text": example.text_a, **pair}


class Classification(TextKind):
    """A softmax over the labels; answers are indices into `Task.labels`."""

    name = "classification"
    make_head = staticmethod(lazily("convbert.model.heads.task:ClassificationHead"))
    shares = staticmethod(_softmax)
    has_labels = True
    metrics: ClassVar = {
        "accuracy": metrics.accuracy,
        "f1": metrics.binary_f1,
        "macro_f1": metrics.macro_f1,
        "matthews_corrcoef": metrics.matthews_corrcoef,
    }
    default_metrics = ("accuracy",)
    signatures = "classification"

    def check(self, task: Task) -> None:
        super().check(task)
        fits = len(task.labels) <= 2 or "f1" not in task.metrics
        check_setting(task, fits, "metrics", "macro_f1 of more than two labels")

    def label(self, source: SplitSource, value: Any) -> int:
        return label_index(source.task, value)

    def label_column(self, task: Task, labels: Sequence[int]) -> np.ndarray:
        return np.array(labels, np.int32)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """Returns the labels with the highest `logits` [n, L]."""
        return np.argmax(outputs["logits"], axis=-1)

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> int:
        return list(labels).index(values["label"])


class MultiLabel(TextKind):
    """A sigmoid for each label; a label applies if its probability is at least 0.5."""

    name = "multi_label"
    make_head = staticmethod(lazily("convbert.model.heads.task:MultiLabelHead"))
    shares = staticmethod(_sigmoid)
    has_labels = True
    metrics: ClassVar = {
        "micro_f1": metrics.micro_f1,
        "macro_f1": metrics.macro_f1,
        "accuracy": metrics.accuracy,
    }
    default_metrics = ("micro_f1", "macro_f1", "accuracy")
    signatures = "multi_label"

    def label_values(self, row: dict[str, Any]) -> Any:
        value = row[self.target]
        return [] if value is None else names_in(value)

    def label(self, source: SplitSource, value: Any) -> Chosen:
        """Converts a list of names, or a text of names with `|` between."""
        empty = value is None and source.table is not None  # an empty cell
        names = [] if empty else names_in(value)
        if not isinstance(names, list):
            raise InputError(
                f"`label` should be a list of labels, or labels separated by {SEPARATOR!r}."
                f" Received: {value!r:.60}"
            )
        places = [label_index(source.task, name) for name in names]
        return tuple(place in places for place in range(len(source.task.labels)))

    def label_column(self, task: Task, labels: Sequence[Chosen]) -> np.ndarray:
        """Returns float32 [n, L] of zeros and ones."""
        return np.array(labels, np.float32)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """Returns the labels with `logits` [n, L] of at least 0."""
        return np.asarray(outputs["logits"]) >= 0.0

    def named(self, labels: Sequence[str], answer: Sequence[bool]) -> list[str]:
        return [label for label, applies in zip(labels, answer, strict=True) if applies]

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> list[bool]:
        return [bool(value) for value in values["chosen"]]


def names_in(value: Any) -> Any:
    """Returns the names in a cell as a list; other values than lists and texts unchanged."""
    if not isinstance(value, str):
        return list(value) if isinstance(value, tuple) else value
    return [name.strip() for name in value.split(SEPARATOR)] if value.strip() else []


def number_of(source: SplitSource, value: Any) -> float | None:
    """Returns the score in a cell, for training within `Task.label_range`; None if hidden."""
    task = source.task
    low, high = task.label_range
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    # -1 is tensorflow-datasets' value for a hidden label.
    if source.is_test and (value is None or value == "" or number == -1.0 < low):
        return None
    # What is trained is a share of the range; scores need no range.
    if not (low <= number <= high if source.split == task.train else math.isfinite(number)):
        raise InputError(
            f"the label should be a number from {low:g} to {high:g} (`label_range` of "
            f"task {task.name}), with a decimal point. Received: {value!r:.60}"
        )
    return number


class Regression(TextKind):
    """Predicts a share of `Task.label_range`; answers are in the unit of the labels.

    They are not clipped, so they may be outside of `label_range`.
    """

    name = "regression"
    make_head = staticmethod(lazily("convbert.model.heads.task:RegressionHead"))
    metrics: ClassVar = {"pearson": metrics.pearson, "spearman": metrics.spearman}
    default_metrics = ("spearman", "pearson")
    fields = ("symmetric", "lenient", "label_range")
    signatures = "regression"
    label = staticmethod(number_of)

    def label_column(self, task: Task, labels: Sequence[float]) -> np.ndarray:
        return task.shares(labels)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """Converts `score` [n] to the unit of the labels."""
        low, high = task.label_range
        return low + (high - low) * np.asarray(outputs["score"], np.float64)

    def collapsed(self, predicted: Predicted) -> str | None:
        scores, (low, high) = np.array(predicted.answers, np.float64), predicted.task.label_range
        if not np.all(np.isfinite(scores)):
            return "a predicted score is not finite"
        constant = len(scores) > 1 and np.ptp(scores) <= metrics.CONSTANT * (high - low)
        return f"every prediction is {scores[0]:.4g}" if constant else None

    def named(self, labels: Sequence[str], answer: float) -> float | None:
        """Returns the number, or None if it is not finite, which JSON cannot express."""
        return float(answer) if math.isfinite(answer) else None

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> float:
        return float(values["score"])


for _kind in (Classification, MultiLabel, Regression):
    register(_kind())

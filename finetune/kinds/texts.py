"""Labels of a text or of a pair of texts: one of L labels, any number of them, or a number."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from common.errors import InputError
from common.plugins import lazily
from common.settings import check_setting, one_of, present, within
from finetune import metrics
from finetune.hparams import FinetuningHParams
from finetune.kinds.base import Baseline, Kind, Outputs
from finetune.kinds.predicted import Predicted
from finetune.labels import label_index

if TYPE_CHECKING:
    from finetune.declaration import Task
    from finetune.encoding import Split
    from finetune.task_files import Source
    from model import BackboneConfig

_classification_head = lazily("model.heads.task:ClassificationHead")
_multi_label_head = lazily("model.heads.task:MultiLabelHead")
_regression_head = lazily("model.heads.task:RegressionHead")
_softmax = lazily("scipy.special:softmax")
_sigmoid = lazily("scipy.special:expit")
_WEIGHTS = {"check": (lambda value: all(w >= 0 for w in value.values()), "of numbers at least 0")}
# Scores closer together than this share of the task's range are constant.
_CONSTANT = 1e-6
_MOST = (0.01, 0.99)  # quantiles; what lies outside does not make a run vary
SEPARATOR = "|"  # of labels in one cell of a table
_CELLS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}

# Of each label whether it applies, in the order of `Task.labels`; a label of an example, an answer.
Chosen = tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class TextHParams(FinetuningHParams):
    """Hyper-parameters of tasks of texts."""

    double_unordered: bool = True  # symmetric pairs are trained in both orders
    # Layers on the text's vector: the original's one; or two, as transformers has them for ConvBERT
    # and ELECTRA ("dense") or BERT ("pooler"), to which such a model is converted with its head.
    classifier: str = field(default="linear", metadata=one_of("linear", "dense", "pooler"))


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A text or a pair of texts with a label."""

    id: str  # for GLUE's test files the index the server wants
    text_a: str
    text_b: str | None
    # An index into `Task.labels`, whether each of them applies, or a number within
    # `Task.label_range`; None: unlabelled.
    label: int | tuple[bool, ...] | float | None


class TextKind(Kind):
    """A label for a text, or for a pair of texts; `shares` are probabilities of the `logits`."""

    formats: ClassVar = {"tsv": ".tsv", "csv": ".csv", "jsonl": ".jsonl", "tfds": None}
    needed, optional = ("text_a", "label"), ("text_b", "id")
    target = "label"
    hparams = TextHParams
    shaping = ("max_seq_length", "double_unordered")
    shortened = "cut (of two texts the longer one first)"
    shares: Callable[[np.ndarray], np.ndarray] | None = None
    encode = staticmethod(lazily("finetune.encoding:encode_texts"))

    def label(self, source: Source, where: Any, value: Any) -> Any:
        """The label of a value in a file, as `TextExample` has it."""
        raise NotImplementedError

    def label_column(self, task: Task, labels: Sequence) -> np.ndarray:
        """The labels of n examples as the head's loss takes them: [n] or [n, L]."""
        raise NotImplementedError

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """The answer for every sequence, [n], from what the head predicts."""
        raise NotImplementedError

    def example(self, source: Source, identity: str, where: Any, row: dict) -> TextExample:
        task = source.task
        texts = {role: row[role] for role in ("text_a", "text_b") if role in row}
        for role, text in texts.items():
            if not isinstance(text, str) or not (text.strip() or task.lenient):
                raise InputError(
                    f"`{role}` should be a text that is not empty. Received: {text!r:.60}"
                )
        value = row.get("label")
        hidden = source.is_test and (value is None or value == "")
        label = None if hidden else self.label(source, where, value)
        return TextExample(identity, texts["text_a"], texts.get("text_b"), label)

    def training_examples(
        self, task: Task, examples: list[TextExample], hparams: TextHParams
    ) -> list[TextExample]:
        """Symmetric pairs in both orders: google-research/electra, finetune/classification."""
        if not (task.symmetric and hparams.double_unordered):
            return examples
        pairs = [(x, present(x.text_b)) for x in examples]
        swapped = [dataclasses.replace(x, text_a=second, text_b=x.text_a) for x, second in pairs]
        return [*examples, *swapped]

    def check_hparams(self, task: Task, hparams: Any, config: BackboneConfig) -> None:
        fits = hparams.classifier == "linear" or not config.summary_layer
        check_setting(hparams, fits, "classifier", "linear: such a backbone brings its own layer")

    def answers(
        self, task: Task, split: Split, outputs: Outputs, hparams: FinetuningHParams
    ) -> list:
        values = self.values(task, outputs)
        return values[np.argsort(split.encoded.sequences["example"], kind="stable")].tolist()

    def probabilities(self, predicted: Predicted, number: int) -> np.ndarray | None:
        if self.shares is None or "logits" not in predicted.outputs:
            return None
        return self.shares(np.asarray(predicted.outputs["logits"][number], np.float64))

    def request(self, task: Task, example: TextExample) -> dict[str, Any]:
        pair = {} if example.text_b is None else {"text_pair": example.text_b}
        return {"text": example.text_a, **pair}


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
    head_is_shared = True
    shares = staticmethod(_softmax)
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
        return _classification_head(len(task.labels), config, hparams.classifier, **options)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """The labels of highest `logits` [n, L]."""
        return np.argmax(outputs["logits"], axis=-1)

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> int:
        return list(labels).index(values["label"])


class MultiLabel(TextKind):
    """A sigmoid for each label; a label applies from a probability of one half on."""

    name = "multi_label"
    head_is_shared = True
    shares = staticmethod(_sigmoid)
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
        return _multi_label_head(len(task.labels), config, hparams.classifier)

    def values(self, task: Task, outputs: Outputs) -> np.ndarray:
        """The labels of `logits` [n, L] of at least 0."""
        return np.asarray(outputs["logits"]) >= 0.0

    def named(self, labels: Sequence[str], answer: Sequence[bool]) -> list[str]:
        return [label for label, applies in zip(labels, answer, strict=True) if applies]

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> list[bool]:
        return [bool(value) for value in values["chosen"]]


def _applying(source: Source, columns: tuple, cells: list) -> Chosen | None:
    """Converts a row's cells of 0 and 1 to a bool per label; None if the test split hides them."""
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


class Regression(TextKind):
    """The network learns a share of `Task.label_range`; answers are in the unit of the labels.

    They are not clipped and may lie outside `label_range`; so they are scored, and so an exported
    model answers.
    """

    name = "regression"
    head_is_shared = True
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
        return _regression_head(config, hparams.classifier)

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

"""The interface of the kinds of tasks, such as classification, regression, tagging and spans.

A kind is a subclass of `Kind` in a file that ends with `register(ItsName())`. All other code uses
the interface, `task.plugin`, without knowing the kind. Declarations are checked before TensorFlow
is imported, so a kind refers to functions that need it by name: see `plugins.lazily`.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from convbert.common.errors import InputError
from convbert.common.plugins import Registry
from convbert.common.settings import check_setting, did_you_mean, field_names, present
from convbert.finetune.hparams import FinetuningHParams, FinetuningRunSettings
from convbert.finetune.metrics import Metric, constant_answer

if TYPE_CHECKING:
    from convbert.data.text.layout import TextLayout
    from convbert.finetune.declaration import Task
    from convbert.finetune.encoding import Encoded, Split
    from convbert.finetune.task_files import SplitSource
    from convbert.model import BackboneConfig

Outputs = Mapping[str, np.ndarray]
_SHOWN = 40  # labels in messages


@dataclasses.dataclass(frozen=True)
class Predicted:
    """A run's answers to the examples of a split."""

    task: Task  # with its labels
    examples: Sequence
    answers: Sequence  # one per example, as `Kind.answers` gives
    # The network's outputs, one item per sequence; {} if not available.
    outputs: Outputs = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.examples) != len(self.answers):
            raise ValueError(f"{len(self.answers)} answers to {len(self.examples)} examples")


class Kind:
    """A kind of task: data, computation, reports. Subclasses must define what has no default.

    Examples are frozen dataclasses with an `id` and, if the kind has a `target`, a field of that
    name, None in unlabelled ones.

    For losses that read the whole batch, as with in-batch negatives, see docs/contributing.md.
    `length_buckets` only changes padding, not the composition of batches. A batch may contain an
    example twice (see the column `example`) if it spans two epochs or is larger than the training
    split, and copies of `weight` 0 with `whole_examples`: these are not negatives. Heads of this
    package do not read `finetune.learner.NUMBERS`, so runs that differ in these share them.
    """

    name: str  # value of `kind` in declarations and recorded runs
    # Format (of `finetune.task_files.READERS`) -> file extension, or None if it has none.
    formats: ClassVar[Mapping[str, str | None]]
    # Roles of columns in every split; the target may be missing in test splits.
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ("id",)  # roles of columns that a split may have
    varied: tuple[str, ...] = ()  # those that tables in memory may have in some splits alone
    # Format -> roles that its files define, which no column may have.
    filled: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Role of the predicted column, and the field of examples; None if files define it.
    target: str | None = None
    has_labels: bool = False  # whether answers are among `Task.labels`
    # Frozen dataclass of the hyper-parameters, with defaults and checks, see `settings`; a subclass
    # if the kind has its own. Methods get an instance.
    hparams: ClassVar[type[FinetuningHParams]] = FinetuningHParams
    # Replace None in `hparams`; `max_seq_length` is limited by the model's positions.
    defaults: ClassVar[Mapping[str, Any]] = {"num_train_epochs": 3.0, "max_seq_length": 128}
    shortened: str = "cut"  # the treatment of long examples, for the log
    token_outputs: tuple[str, ...] = ()  # names of the head's outputs with a value per token
    metrics: ClassVar[dict[str, Metric | None]]  # None if `score` computes it otherwise
    default_metrics: tuple[str, ...]  # of declarations without `metrics`
    fields: tuple[str, ...] = ()  # of declarations, beside those that all kinds read
    served: tuple[str, ...] = ()  # outputs of `serving_default` in answers beside "prediction"

    # Data.

    def default_metrics_of(self, roles: Collection[str]) -> tuple[str, ...]:
        """Returns `default_metrics` for a development split with these columns."""
        return self.default_metrics

    def check(self, task: Task) -> None:
        """Raises InputError for a declaration that is invalid for this kind."""
        for split in task.files:
            self._check_columns(task, split)
        paired = not task.symmetric or "text_b" in task.columns_of(task.train)
        check_setting(task, paired, "symmetric", "true only for pairs, `text_a` and `text_b`")
        known = {*task.metrics} <= {*self.metrics}
        check_setting(task, known, "metrics", f"among {', '.join(self.metrics)}")

    def _check_columns(self, task: Task, split: str) -> None:
        """Raises InputError for columns that are missing, unknown, or both input and target."""
        columns, filled = task.columns_of(split), self.filled.get(task.format, ())
        roles = [role for role in (*self.needed, *self.optional) if role not in filled]
        hidden = (self.target,) if split in task.test else ()
        wanted = f"roles -> columns of the split {split!r}, of {', '.join(roles)}"
        for role, column in columns.items():
            check_setting(task, role in roles, "columns", f"{wanted}, unlike `{role}`")
            fits = role in (self.target, "id") or column != columns.get(self.target or "")
            check_setting(task, fits, "columns", f"others for `{role}` than for `{self.target}`")
        for role in self.needed:
            fits = role in (*columns, *hidden, *filled)
            check_setting(task, fits, "columns", f"{wanted}, with `{role}`")
        for role in self.optional:  # other inputs than those of training
            same = (role in columns) == (role in task.columns_of(task.train))
            fits = same or role in ("id", *self.varied)
            check_setting(task, fits, "columns", f"with `{role}` in all splits or none")

    def example(self, source: SplitSource, identity: str, row: dict[str, Any]) -> Any:
        """The example of a row, role -> value; InputErrors get its place."""
        raise NotImplementedError

    def label_values(self, row: dict[str, Any]) -> Any:
        """Returns the labels of a row as a list, for collecting the task's labels."""
        return [row[present(self.target)]]

    def check_training(self, task: Task, place: str, examples: Sequence) -> None:
        """Raises InputError for a training split, in `place`, with nothing to learn."""
        if not self.has_labels:
            return
        counts: collections.Counter[str] = collections.Counter()
        for example in examples:
            gold = self.gold(task, example)
            counts.update(gold if isinstance(gold, list) else [gold])
        if len({" ".join(name.split()) for name in counts}) < max(2, len(counts)):
            raise InputError(
                f"{place}: the training split of task {task.name} should have at least two labels"
                f" that differ in more than whitespace. Received: {shown(counts)}"
            )

    def training_examples(self, task: Task, examples: list, hparams: Any) -> list:
        """Returns the examples to train on: the training split's, and any that a kind adds."""
        return examples

    def note(self, examples: Sequence) -> str:
        """Returns what the log should say about a split; "" for nothing."""
        return ""

    # Computation.

    @property
    def shaping(self) -> tuple[str, ...]:
        """Returns the kind's hyper-parameters that affect encoding. Default: all of its own."""
        shared = field_names(FinetuningHParams)
        return tuple(name for name in field_names(self.hparams) if name not in shared)

    def check_hparams(self, task: Task, hparams: Any, config: BackboneConfig) -> None:
        """Raises InputError for values that do not fit together or the encoder.

        Labels that the task collects are not known yet.
        """

    def encode(self, task: Task, examples: list, layout: TextLayout, hparams: Any) -> Encoded:
        """Encodes examples as token ids and columns that the head's loss reads from `batch`.

        This and `answers` may be lazily imported functions of a module that imports TensorFlow.
        """
        raise NotImplementedError

    def group_size(self, task: Task) -> int:
        """Returns the number of sequences per example, which stay together, in order, in a batch.

        A head may reshape [B, ...] to [B / group_size, group_size, ...]. Batches count sequences.
        """
        return 1

    def whole_examples(self, hparams: Any) -> bool:
        """Returns True if all sequences of an example must be in one batch, in order."""
        return False

    def head(self, task: Task, config: BackboneConfig, hparams: Any) -> Any:
        """Creates a head for an encoder of this `config`, see `model.heads.task`."""
        raise NotImplementedError

    def answers(self, task: Task, split: Split, outputs: Outputs, hparams: Any) -> list:
        """Returns one answer per example, from the head's predictions for every sequence.

        `token_outputs` lie along the tokens; `outputs` also has the head's `constants`.
        """
        raise NotImplementedError

    # Reports.

    def score(self, predicted: Predicted) -> dict[str, float | None]:
        """Returns metric -> score, the main one first, times 100 as in the papers.

        An undefined score, such as the correlation with a constant, is None; F1 and Matthews'
        correlation of constants are 0.
        """
        gold = self._targets(predicted.examples)
        scores: dict[str, float | None] = {}
        for name in predicted.task.metrics:
            with warnings.catch_warnings():  # about constants and labels never predicted
                warnings.simplefilter("ignore")
                value = float(present(self.metrics[name])(predicted, gold))
            scores[name] = 100.0 * value if np.isfinite(value) else None
        return scores

    def collapsed(self, predicted: Predicted) -> str | None:
        """Returns a warning if all or nearly all answers are the same, else None.

        Such a run has learned nothing; its score should not be hidden in an average.
        """
        task = predicted.task
        answers = [self.named(task.labels, answer) for answer in predicted.answers]
        return constant_answer(answers, [self.gold(task, x) for x in predicted.examples])

    def baseline(self, examples: Sequence) -> list | None:
        """Returns the most frequent gold label as each example's answer; None without labels."""
        if not self.has_labels:
            return None
        counts = collections.Counter(self._targets(examples))
        return [max(sorted(counts), key=counts.__getitem__)] * len(examples)

    def by_label(self, predicted: Predicted) -> dict[str, dict[str, float]]:
        """Returns entity type -> `precision`, `recall`, `f1`, times 100, and `support`."""
        return {}

    def named(self, labels: Sequence[str], answer: Any) -> Any:
        """Returns an answer in the form of files."""
        return labels[answer] if self.has_labels else answer

    def gold(self, task: Task, example: Any) -> Any:
        """Returns the gold label in the form of files, or None for an unlabelled example."""
        (label,) = self._targets([example])
        return None if label is None else self.named(task.labels, label)

    def _targets(self, examples: Sequence) -> list:
        target = present(self.target)
        return [getattr(example, target) for example in examples]

    def probabilities(self, predicted: Predicted, number: int) -> np.ndarray | None:
        """Returns the predicted probabilities of an example's labels, or None without any."""
        return None

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """Returns an example's line of the predictions: "prediction", "probabilities", ..."""
        labels, shares = predicted.task.labels, self.probabilities(predicted, number)
        row = {"prediction": self.named(labels, predicted.answers[number])}
        if shares is not None:
            row["probabilities"] = dict(zip(labels, (round(float(p), 6) for p in shares)))
        return row

    def write_files(self, predicted: Predicted, folder: str, split: str) -> None:
        """Writes further files of predictions, named SPLIT_...."""

    # Signatures of exported models: a name in serving/signatures/tasks.py, or a method that maps a
    # `serving.signatures.network.Network` to signatures by name, including `serving_default`. An
    # input reads the column of its name or role; one with two axes is a list, padded with "".
    signatures: str | Callable[[Any], dict[str, Any]]

    def request(self, task: Task, example: Any) -> dict[str, Any]:
        """Returns an example as inputs of an exported model, by name; `words` if it has words."""
        values = {field.name: getattr(example, field.name) for field in dataclasses.fields(example)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name not in ("id", self.target)
        }

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> Any:
        """Converts the outputs of an exported model to an answer as in `answers`."""
        raise NotImplementedError

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """Converts the outputs of `serving_default` for one text to the form of `row`."""
        row = {"prediction": self.named(labels, self.answer_of(labels, values))}
        row |= {name: values[name] for name in self.served if name in values}
        if "probabilities" in values:
            row["probabilities"] = dict(zip(labels, values["probabilities"]))
        return row


def label_name(value: Any) -> str:
    """Returns a label as text: 1, 1.0 and "1" are the same; JSON's true is "True", as in pandas."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    finite = not isinstance(value, float) or math.isfinite(value)
    if not isinstance(value, (str, int, float)) or value == "" or not finite:
        raise InputError(
            f"the label should be a non-empty text or a number. Received: {value!r:.60}"
        )
    return str(value)


def label_index(task: Task, value: Any) -> int:
    """Returns the index in `task.labels` of a value in a file; InputError for other labels."""
    name = label_name(value)
    if name not in task.labels:
        raise InputError(
            f"labels should be among {', '.join(map(repr, task.labels[:_SHOWN]))}, of `labels` or"
            f" the training split. Received: {name!r}.{did_you_mean(name, task.labels)}"
        )
    return task.labels.index(name)


def shown(counts: Mapping[str, int]) -> str:
    """Formats labels with their counts, abbreviated if there are many."""
    said = [f"{name!r} {count:,}" for name, count in itertools.islice(counts.items(), _SHOWN)]
    return ", ".join([*said, *["..."] * (len(counts) > _SHOWN)]) or "none"


_REGISTRY: Registry[Kind] = Registry("kind")
get, names = _REGISTRY.get, _REGISTRY.names


def register(kind: Kind) -> None:
    """Registers a kind for declarations and recorded runs; see `Registry.add`."""
    shared = {*field_names(FinetuningRunSettings), "task_names"} & {*field_names(kind.hparams)}
    if shared:
        raise ValueError(f"kind {kind.name}: `{min(shared)}` is a setting of every run")
    _REGISTRY.add(kind.name, kind, type(kind))


def hparam_names() -> list[str]:
    """Returns the names of the hyper-parameters of all kinds."""
    return list(dict.fromkeys(field_names(*(get(name).hparams for name in names()))))

"""The interface of kinds of tasks, such as classification, regression, tagging and spans.

A kind is a subclass of `Kind` in a file that ends with `register(ItsName())`. All other code asks
the task for its kind (`task.plugin`), and never which one it is. A declaration is checked before
TensorFlow is imported, so a kind names what needs it as text: see `plugins.lazily`.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from convbert.common.errors import InputError
from convbert.common.plugins import Registry
from convbert.common.settings import check_setting, did_you_mean, field_names, present
from convbert.finetune.hparams import FinetuningHParams, FinetuningRunSettings
from convbert.finetune.kinds.predicted import Predicted, constant_answer
from convbert.finetune.metrics import Metric

if TYPE_CHECKING:
    from convbert.data.vocabulary import Vocabulary
    from convbert.finetune.declaration import Task
    from convbert.finetune.encoding import Encoded, Split
    from convbert.finetune.task_files import SplitSource
    from convbert.model import BackboneConfig

Outputs = Mapping[str, np.ndarray]
_SHOWN = 40  # labels in messages


class Kind:
    """A kind of task in three parts. What has no default has to be given by a subclass.

    What the data are: the attributes from `formats` to `has_labels`; `check`, `example`,
    `label_values`, `check_training`, `training_examples`. Examples are frozen dataclasses with an
    `id` and, if the kind has a `target`, a field of that name, None in unlabelled ones.

    What is computed: `hparams`, `defaults`, `check_hparams`; `encode`, `group_size`,
    `whole_examples`; `head`, whose loss is learned; `answers`, from what the head predicts.

    What is reported: `metrics` and `score`; `named`, `row` and what else predictions become;
    `signatures` of an exported model, whose named outputs `answer_of` reads.

    A loss may read the whole batch, as with in-batch negatives, if its head has a true
    `reads_whole_batch`; `training.loop.Trainer` then rejects micro-batches and several devices.
    `length_buckets` changes the padding alone, never which sequences meet. A batch can hold an
    example twice, by the column `example`, where it spans two epochs or is larger than the training
    split, and with `whole_examples` copies of `weight` 0: none of these are negatives.

    Attributes:
        name: what declarations and recorded runs say as `kind`.
        formats: format of files, of `finetune.task_files.READERS` -> ending of their names, None
            where names do not tell.
        needed: roles of columns that every split has; the target may be missing in test splits.
        optional: roles of columns that a split may have.
        filled: format -> roles that its files say by themselves, which no column may have.
        target: the role of the column that is predicted, and the field of examples; None where the
            files say what it is.
        has_labels: whether answers are of `Task.labels`.
        hparams: frozen dataclass of the hyper-parameters, with defaults and checks as `settings`
            says; a subclass where the kind has its own. Methods get an instance of it.
        defaults: values of those that are None in `hparams`; `max_seq_length` becomes less if the
            model has fewer positions.
        shortened: what happens to examples that are too long, for the log.
        token_outputs: names of the head's outputs that have a value for each token.
        head_is_shared: whether runs of a sweep may train one and the same head, which reads none of
            `finetune.learner.NUMBERS`; not inherited.
        metrics: name -> function; None where `score` computes it in another way.
        default_metrics: of a declaration without `metrics`.
        served: outputs of `serving_default` that answers have beside "prediction".
    """

    name: str
    formats: ClassVar[Mapping[str, str | None]]
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ("id",)
    filled: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    target: str | None = None
    has_labels: bool = False
    hparams: ClassVar[type[FinetuningHParams]] = FinetuningHParams
    defaults: ClassVar[Mapping[str, Any]] = {"num_train_epochs": 3.0, "max_seq_length": 128}
    shortened: str = "cut"
    token_outputs: tuple[str, ...] = ()
    head_is_shared: bool = False
    metrics: ClassVar[dict[str, Metric | None]]
    default_metrics: tuple[str, ...]
    served: tuple[str, ...] = ()

    # What the data are.

    def check(self, task: Task) -> None:
        """Raises InputError for a declaration that makes no sense for this kind."""
        for split in task.files:
            self._check_columns(task, split)
        paired = not task.symmetric or "text_b" in task.columns_of(task.train)
        check_setting(task, paired, "symmetric", "true only for pairs, `text_a` and `text_b`")
        known = {*task.metrics} <= {*self.metrics}
        check_setting(task, known, "metrics", f"among {', '.join(self.metrics)}")

    def _check_columns(self, task: Task, split: str) -> None:
        """Raises InputError for columns that are missing, unknown, or both question and answer."""
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

    def example(self, source: SplitSource, identity: str, row: dict[str, Any]) -> Any:
        """The example of a row, role -> value; InputErrors get its place."""
        raise NotImplementedError

    def label_values(self, row: dict[str, Any]) -> Any:
        """The labels of a row, from which those of the task are collected, as a list."""
        return [row[present(self.target)]]

    def check_training(self, task: Task, place: str, examples: Sequence) -> None:
        """Raises InputError for a training split, in `place`, from which nothing is learned."""
        if not self.has_labels:
            return
        counts: collections.Counter[str] = collections.Counter()
        for example in examples:
            gold = self.gold(task, example)
            counts.update(gold if isinstance(gold, list) else [gold])
        if len({" ".join(name.split()) for name in counts}) < max(2, len(counts)):
            raise InputError(
                f"{place}: the training split of task {task.name} should have at least two labels,"
                f" which differ by more than whitespace. Received: {shown(counts)}"
            )

    def training_examples(self, task: Task, examples: list, hparams: Any) -> list:
        """Returns the examples to train on: the training split's, unless a kind adds some."""
        return examples

    # What is computed.

    @property
    def shaping(self) -> tuple[str, ...]:
        """Hyper-parameters that decide what is encoded: by default, all of the kind's own."""
        shared = field_names(FinetuningHParams)
        own = [name for name in field_names(self.hparams) if name not in shared]
        return ("max_seq_length", *own)

    def check_hparams(self, task: Task, hparams: Any, config: BackboneConfig) -> None:
        """Raises InputError for values that do not fit each other, the encoder or known labels."""

    def encode(self, task: Task, examples: list, vocabulary: Vocabulary, hparams: Any) -> Encoded:
        """Token ids of examples, and what the head's loss needs: columns of its `batch` by name.

        This and `answers` may be functions of a module that imports TensorFlow, named lazily.
        """
        raise NotImplementedError

    def group_size(self, task: Task) -> int:
        """How many sequences each example has, which stay together, in order, in a batch.

        A head may see [B, ...] as [B / group_size, group_size, ...]. Batch sizes count sequences.
        """
        return 1

    def whole_examples(self, hparams: Any) -> bool:
        """Returns True if all sequences of an example, however many, share a batch in order."""
        return False

    def head(self, task: Task, config: BackboneConfig, hparams: Any) -> Any:
        """A new head for an encoder of this `config`, see `model.heads.task`."""
        raise NotImplementedError

    def answers(self, task: Task, split: Split, outputs: Outputs, hparams: Any) -> list:
        """One answer per example, from what the head's `predict` gives for every sequence.

        `token_outputs` lie along the tokens; the head's `constants` are there, too.
        """
        raise NotImplementedError

    # What is reported.

    def score(self, predicted: Predicted) -> dict[str, float | None]:
        """Metric -> score, the main one first, times 100 as the papers print it.

        A score that is not a number, such as the correlation with a constant, is None; F1 and
        Matthews' correlation of constants are 0.
        """
        gold = self._targets(predicted.examples)
        scores: dict[str, float | None] = {}
        for name in predicted.task.metrics:
            with warnings.catch_warnings():  # about what is constant or never predicted
                warnings.simplefilter("ignore")
                value = float(present(self.metrics[name])(predicted, gold))
            scores[name] = 100.0 * value if np.isfinite(value) else None
        return scores

    def collapsed(self, predicted: Predicted) -> str | None:
        """Returns a warning if all, or nearly all, answers are the same; else None.

        Such a run has learned nothing, and its score should not hide in an average.
        """
        task = predicted.task
        answers = [self.named(task.labels, answer) for answer in predicted.answers]
        return constant_answer(answers, [self.gold(task, x) for x in predicted.examples])

    def baseline(self, examples: Sequence) -> list | None:
        """The most frequent gold label as the answer to each example; None without labels."""
        if not self.has_labels:
            return None
        counts = collections.Counter(self._targets(examples))
        return [max(sorted(counts), key=counts.__getitem__)] * len(examples)

    def by_label(self, predicted: Predicted) -> dict[str, dict[str, float]]:
        """Type of entity -> `precision`, `recall`, `f1`, times 100, and `support`."""
        return {}

    def named(self, labels: Sequence[str], answer: Any) -> Any:
        """An answer as files have it."""
        return labels[answer] if self.has_labels else answer

    def gold(self, task: Task, example: Any) -> Any:
        """The gold label as files have it; None where there is none."""
        (label,) = self._targets([example])
        return None if label is None else self.named(task.labels, label)

    def _targets(self, examples: Sequence) -> list:
        target = present(self.target)
        return [getattr(example, target) for example in examples]

    def probabilities(self, predicted: Predicted, number: int) -> np.ndarray | None:
        """Those of an example's labels, from what the head predicts; None where it says none."""
        return None

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """An example's line in the file of predictions: "prediction", "probabilities", ..."""
        labels, shares = predicted.task.labels, self.probabilities(predicted, number)
        row = {"prediction": self.named(labels, predicted.answers[number])}
        if shares is not None:
            row["probabilities"] = dict(zip(labels, (round(float(p), 6) for p in shares)))
        return row

    def write_files(self, predicted: Predicted, folder: str, split: str) -> None:
        """Writes what the kind has beside the file of predictions, named SPLIT_...."""

    # What an exported model can be asked: a name of serving/signatures/tasks.py, or a method from a
    # `serving.signatures.network.Network` to signatures by name, `serving_default` among them. An
    # input takes the column of its name or role; one of two axes is a list, padded with "".
    signatures: str | Callable[[Any], dict[str, Any]]

    def request(self, task: Task, example: Any) -> dict[str, Any]:
        """An example as the inputs of an exported model, by name; `words` where it has them."""
        values = {field.name: getattr(example, field.name) for field in dataclasses.fields(example)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name not in ("id", self.target)
        }

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> Any:
        """The answer, as `answers` has it, that the outputs of an exported model are."""
        raise NotImplementedError

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """The outputs of `serving_default` for one text in the form of `row`."""
        row = {"prediction": self.named(labels, self.answer_of(labels, values))}
        row |= {name: values[name] for name in self.served if name in values}
        if "probabilities" in values:
            row["probabilities"] = dict(zip(labels, values["probabilities"]))
        return row


def label_name(value: Any) -> str:
    """A label as text: 1, 1.0 and "1" are the same, JSON's true is "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (str, int, float)) or value == "":
        raise InputError(
            f"the label should be a text that is not empty, or a number. Received: {value!r:.60}"
        )
    return str(value)


def label_index(task: Task, value: Any) -> int:
    """The place in `task.labels` of a value in a file; InputError if the task does not have it."""
    name = label_name(value)
    if name not in task.labels:
        raise InputError(
            f"labels should be among {', '.join(task.labels[:_SHOWN])}, those of the training split"
            f" or of `labels`. Received: {name!r}.{did_you_mean(name, task.labels)}"
        )
    return task.labels.index(name)


def shown(counts: Mapping[str, int]) -> str:
    """Labels with their numbers, the first of many."""
    said = [f"{name!r} {count:,}" for name, count in itertools.islice(counts.items(), _SHOWN)]
    return ", ".join([*said, *["..."] * (len(counts) > _SHOWN)]) or "none"


_REGISTRY: Registry[Kind] = Registry("kind")
get, names = _REGISTRY.get, _REGISTRY.names


def register(kind: Kind) -> None:
    """Adds a kind, which declarations and recorded runs name from now on; see `Registry.add`."""
    shared = {*field_names(FinetuningRunSettings), "task_names"} & {*field_names(kind.hparams)}
    if shared:
        raise ValueError(f"kind {kind.name}: `{min(shared)}` is a setting of every run")
    _REGISTRY.add(kind.name, kind, type(kind))


def hparam_names() -> list[str]:
    """The names of the hyper-parameters of all kinds."""
    return list(dict.fromkeys(field_names(*(get(name).hparams for name in names()))))

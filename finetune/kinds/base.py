"""What a kind of task is: all that differs between labels, scores, tags and spans of texts.

A kind is a subclass of `Kind`, of which one instance is registered (`finetune.kinds.register`).
Everything else in this project asks the task for its kind (`task.plugin`), and never which one it
is. A kind answers, in the order of a run:

    declaration  formats, columns, metrics, `check`
    examples     `read` or `example`, `label_values`, `check_training`, `training_examples`
    settings     `hparams`, `shaping`, `defaults`, `check_hparams`
    network      `encode`, `group_size`, `head`, `answers`
    scores       `score`, `undefined`, `collapsed`, `constant`, `baselines`
    files        `gold`, `row`, `error`, `write_files`
    serving      `signatures`, `answer_row`

A declaration is checked before TensorFlow is imported, so a kind names what needs it as text:
see `plugins.lazily`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from finetune.hparams import FinetuningHParams
from finetune.kinds.predicted import Predicted
from settings import check_setting, field_names

if TYPE_CHECKING:
    from data.vocabulary import Vocabulary
    from finetune.encoded import Encoded
    from finetune.readers.tables import Row
    from finetune.task import Columns, Task
    from finetune.task_files import Source
    from model import BackboneConfig

# A metric is a function of (task, gold, answers), both with one item per example; 1 is the best.
Metric = Callable[["Task", list, Sequence], float]
# How bad an error is, and what to say of it.
Error = tuple[float, str]
# What answers, the answer as files have it ("" where it is not one), one answer for each example.
Baseline = tuple[str, Any, list]

EPOCHS, LONG_EPOCHS = 3.0, 10.0
LONG_TASKS = ("rte", "sts")  # small ones of GLUE, which the papers train for longer


class Kind:
    """A kind of task. Everything without a default here has to be given by a subclass.

    Examples are frozen dataclasses with an `id`; where the kind has a `target`, also with a field
    of that name, None where the example is unlabelled.

    Attributes:
        name: what declarations and recorded runs say as `kind`.
        formats: format of files -> ending of their names, None where names do not tell. The readers
            of tsv, csv, jsonl and tfds are the project's; a kind reads others in `rows`.
        folder_formats: those of them whose splits are folders of files.
        needed: roles of columns that every split has; the target may be missing in test splits.
        optional: roles of columns that a split may have.
        list_roles: those whose values are lists; a declaration may name a list of columns for such
            a role, each of which holds one item, "" at the end none.
        target: the role of the column that is predicted, and the field of examples; None where the
            files themselves say what it is.
        has_labels: whether answers are of a list of labels, `Task.labels`, which is collected from
            the training split where it is not declared.
        metrics: name -> function; None where `score` computes it in another way.
        lower_is_better: names of metrics in the unit of the labels, not times 100; never the first.
        default_metrics: of a declaration without `metrics`.
        hparams: frozen dataclass of the hyper-parameters, a subclass where the kind has its own;
            all have defaults, and checks as `settings` says. JSON may hold those of any kind,
            whichever the tasks are of.
        shortened: what happens to examples that are too long, for the log.
        token_outputs: names of outputs that have a value for each token.
    """

    name: str
    formats: ClassVar[Mapping[str, str | None]]
    folder_formats: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ("id",)
    list_roles: tuple[str, ...] = ()
    target: str | None = None
    has_labels: bool = False
    metrics: ClassVar[dict[str, Metric | None]]
    lower_is_better: tuple[str, ...] = ()
    default_metrics: tuple[str, ...]
    hparams: ClassVar[type[FinetuningHParams]] = FinetuningHParams
    shortened: str = "cut"
    token_outputs: tuple[str, ...] = ()

    # declaration

    def needed_columns(self, file_format: str) -> tuple[str, ...]:
        """The roles of columns that files of a format need: `needed`."""
        return self.needed

    def check_columns(self, task: Task, split: str) -> None:
        """Raises InputError for columns that are missing, unknown, or both question and answer."""
        needed, columns = self.needed_columns(task.format), task.columns_of(split)
        roles = needed + self.optional
        hidden = (self.target,) if split in task.test else ()
        lists = f"; a list for {', '.join(self.list_roles)}" if self.list_roles else ""
        wanted = f"roles -> columns of the split {split!r}, of {', '.join(roles)}{lists}"
        for role, column in columns.items():
            fits = role in roles and (role in self.list_roles or not isinstance(column, tuple))
            check_setting(task, fits, "columns", f"{wanted}, unlike `{role}`")
            gold = {*_several(columns.get(self.target))} if role not in (self.target, "id") else {}
            fits = not {*_several(column)} & {*gold}
            check_setting(task, fits, "columns", f"others for `{role}` than for `{self.target}`")
        for role in needed:
            check_setting(task, role in (*columns, *hidden), "columns", f"{wanted}, with `{role}`")

    def check(self, task: Task) -> None:
        """Raises InputError for a declaration that makes no sense for this kind."""
        check_setting(task, not task.symmetric, "symmetric", "true only for pairs of texts")

    def check_metrics(self, task: Task) -> None:
        """Raises InputError for metrics that do not exist or do not apply to the task."""
        known, first = {*task.metrics} <= {*self.metrics}, task.metrics[0]
        check_setting(task, known, "metrics", f"among {', '.join(self.metrics)}")
        higher = first not in self.lower_is_better
        check_setting(task, higher, "metrics", "first one of which higher values are better")

    # examples

    def read(self, source: Source) -> list:
        """The examples of a split: `example` of each row; InputErrors name file and line."""
        return [
            self.example(source, identity, where, row)
            for identity, where, row in source.identified_rows()
        ]

    def example(self, source: Source, identity: str, where: str, row: dict[str, Any]) -> Any:
        """The example of a row.

        `where` is file and line, with which InputErrors begin, `row` role -> value.
        """
        raise NotImplementedError

    def rows(self, source: Source) -> Iterator[Row]:
        """The rows of a file in a format of this kind's own: (file and line, role -> value)."""
        raise NotImplementedError

    def located(self, file_format: str, path: str) -> str | None:
        """`path` where it is a split that is there without being a file's name; None where not."""
        return None

    def label_names(self, task: Task) -> tuple[str, ...]:
        """The labels that the declaration says without naming them; none: they are in the rows."""
        return ()

    def label_values(self, row: dict[str, Any]) -> Any:
        """The labels of a row, as a list, from which those of the task are collected."""
        return [row[self.target]]

    def check_training(self, task: Task, place: str, examples: Sequence) -> None:
        """Rejects, or warns of, a training split from which the task cannot be learned.

        `place` is its file, which an InputError names; there is at least one example.
        """

    def training_examples(self, task: Task, examples: list, hparams: FinetuningHParams) -> list:
        """What is trained on, if it is more than the examples of the training split."""
        return examples

    # settings

    @property
    def shaping(self) -> tuple[str, ...]:
        """Hyper-parameters that decide what is encoded: by default, all of the kind's own."""
        shared = field_names(FinetuningHParams)
        own = [name for name in field_names(self.hparams) if name not in shared]
        return ("max_seq_length", *own)

    def defaults(self, task: Task) -> dict[str, Any]:
        """Hyper-parameters where they are not given.

        `max_seq_length` becomes less where the model has fewer positions.
        """
        epochs = LONG_EPOCHS if task.name in LONG_TASKS else EPOCHS
        return {"num_train_epochs": epochs, "max_seq_length": 128}

    def check_hparams(self, hparams: FinetuningHParams) -> None:
        """Raises InputError for values that do not fit each other (see `check_setting`)."""

    def check_network(self, task: Task, hparams: FinetuningHParams, config: BackboneConfig) -> None:
        """Raises InputError for values that do not fit the encoder, or the labels if known."""

    # network

    def encode(
        self, task: Task, examples: Sequence, vocabulary: Vocabulary, hparams: FinetuningHParams
    ) -> Encoded:
        """Token ids of the examples, and the columns that the head's loss needs.

        A column of tokens or sequences arrives in the head's `batch` by its name.
        """
        raise NotImplementedError

    def group_size(self, task: Task) -> int:
        """How many sequences, one after another, stay together in a batch, in their order.

        An example that is encoded as a group of sequences (a question and each of its choices, for
        instance) always has this many. A head may then see [B, ...] as [B / group_size, group_size,
        ...]. Batch sizes count sequences and are multiples of it on every device.
        """
        return 1

    def whole_examples(self, hparams: FinetuningHParams) -> bool:
        """Whether the sequences of an example, however many, share a training batch in order.

        The head finds them one after the other, by the column `example` and what `encode` adds.
        """
        return False

    def head(self, task: Task, config: BackboneConfig, hparams: FinetuningHParams) -> Any:
        """A new head for an encoder of this `config`, see `model.heads.task`."""
        raise NotImplementedError

    def answers(
        self,
        task: Task,
        examples: Sequence,
        encoded: Encoded,
        outputs: Mapping[str, np.ndarray],
        hparams: FinetuningHParams,
    ) -> list:
        """One answer per example, from what the head predicts for every sequence.

        `outputs` are those of the head's `predict`, one item per sequence of `encoded`, but for
        `token_outputs`, which lie along the tokens; and the head's `constants` where it has any.
        """
        raise NotImplementedError

    # scores

    def score(self, predicted: Predicted) -> dict[str, float | None]:
        """The task's metrics, times 100 as the papers print them, but for `lower_is_better`.

        A score that is not a number, such as the correlation with a constant, is None; `undefined`
        has the reason. Where a convention makes it 0 (F1 and Matthews' correlation of constants),
        it is 0.

        Returns:
            metric -> score, the main one first.

        Raises:
            InputError: a metric does not apply to such a task.
            ValueError: an example has no label.
        """
        task = predicted.task
        self.check_metrics(task)
        gold = [getattr(example, self.target) for example in predicted.examples]
        if any(label is None for label in gold):
            raise ValueError(f"{task.name}: examples should have labels to be scored")
        scores = {}
        for name in task.metrics:
            with warnings.catch_warnings():  # about what is constant or never predicted
                warnings.simplefilter("ignore")
                value = float(self.metric(name, predicted, gold))
            factor = 1.0 if name in self.lower_is_better else 100.0
            scores[name] = factor * value if np.isfinite(value) else None
        return scores

    def metric(self, name: str, predicted: Predicted, gold: list) -> float:
        """One of `metrics`, which a kind may compute from what the network says."""
        return self.metrics[name](predicted.task, gold, predicted.answers)

    def undefined(self, predicted: Predicted, scores: dict[str, float | None]) -> dict[str, str]:
        """Why scores have no value: metric -> reason, for those that `score` gave as None."""
        without = [name for name, value in scores.items() if value is None]
        return dict.fromkeys(without, self.collapsed(predicted) or "the score is not a number")

    def collapsed(self, predicted: Predicted) -> str | None:
        """What all answers are, where they are all the same; None where they differ.

        Such a run has learned nothing, and its score (0 for Matthews' and other correlations, the
        share of the most frequent label for accuracy) should not hide in an average.
        """
        return None

    def constant(self, task: Task, examples: Sequence) -> Baseline | None:
        """The best answer that ignores its input, from the gold labels of the split itself.

        Returns:
            (what it is, the answer as files have it, one answer for each example), or None.
        """
        return None

    def baselines(self, task: Task, examples: Sequence) -> list[Baseline]:
        """What answers without learning: `constant`, and rules that the kind knows."""
        found = self.constant(task, examples)
        return [] if found is None else [found]

    def by_label(self, predicted: Predicted) -> dict[str, dict[str, float]]:
        """Label, or type of entity -> `precision`, `recall`, `f1`, times 100, and `support`."""
        return {}

    # files

    def gold(self, task: Task, example: Any) -> Any:
        """The gold label in the form of the prediction in `row`; None where there is none."""
        raise NotImplementedError

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """One example's line in the file of predictions: an object with "prediction"."""
        raise NotImplementedError

    def error(self, predicted: Predicted, number: int) -> Error | None:
        """The error in the answer to a labelled example; None where the answer is right."""
        return None

    def write_files(self, predicted: Predicted, folder: str, split: str) -> None:
        """Writes what the kind has beside the file of predictions, named SPLIT_...."""

    # serving

    # What an exported model can be asked: a name of signatures/kinds.py, or a method from a
    # `signatures.network.Network` to `serving_default`, `token_ids` and others by name.
    # `serving.predict` fills an input from the key of its name, or from the column whose role it
    # is; one of two axes is a list of texts, padded with "".
    signatures: str | Callable[[Any], dict[str, Any]]

    def request(self, task: Task, example: Any) -> dict[str, Any]:
        """An example as the inputs of an exported model, by name; `words` where it has them."""
        raise NotImplementedError

    def answer_of(self, task: Task, values: Mapping[str, Any]) -> Any:
        """An exported model's answer to a `request`, as `answers` has it."""
        raise NotImplementedError

    def outputs_of(self, task: Task, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """What `Predicted.outputs` has, as far as an exported model's answers say it."""
        return {}

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """An exported model's answer to one text as JSON, in the form of `row` as far as it goes.

        `values` are the outputs of `serving_default` for this text, `labels` those of the task.
        """
        return values


def _several(column: Columns | None) -> Sequence:
    return column if isinstance(column, tuple) else (column,)

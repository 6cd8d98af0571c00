"""One of several options for a context and, where there is one, a question about it."""

from __future__ import annotations

import collections
import dataclasses
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError, located
from finetune import metrics, overlap
from finetune.hparams import FinetuningHParams
from finetune.kinds.base import Baseline, Error, Kind
from finetune.kinds.classification import probabilities
from finetune.kinds.predicted import (
    Predicted,
    confidence,
    constant_label,
    first_most_frequent,
    quoted,
)
from finetune.labels import check_counts, label_index
from finetune.readers.race import read_race
from plugins import lazily
from settings import at_least, check_setting, typed

if TYPE_CHECKING:
    from data.vocabulary import Vocabulary
    from finetune.encoded import Encoded
    from finetune.readers.tables import Row
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

_encode_choices = lazily("finetune.encoding:encode_choices")
_tokenizer = lazily("data.tokenizers:create_tokenizer")
_head = lazily("model.heads.task:MultipleChoiceHead")


@dataclasses.dataclass(frozen=True)
class MultipleChoiceHParams(FinetuningHParams):
    """Hyper-parameters of multiple choice; see `text.choices.lay_out_choices`."""

    max_qa_length: int = field(default=128, metadata=at_least(1))  # pieces of question and option
    question_apart: bool = True  # as in the ALE report; XLNet's and ALBERT's code: one text
    fill_blank: bool = False  # the option takes the place of "_" in the question, as in XLNet's


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A context, a question ("" where there is none) and its options."""

    id: str
    context: str
    question: str
    options: tuple[str, ...]
    label: int | None  # the place of the right one; None: unlabelled
    level: str = ""  # of difficulty, or any other group with a score of its own


class MultipleChoice(Kind):
    """A softmax over the scores of an example's options; answers are their places.

    The labels of the task are the names of the places, such as A, B, C, D. An example may have
    fewer options, and then shares its group of sequences with ones that stand for no option.
    """

    name = "multiple_choice"
    formats: ClassVar = {"jsonl": ".jsonl", "csv": ".csv", "tsv": ".tsv", "race": None}
    folder_formats = ("race",)
    needed, optional = ("context", "options", "label"), ("question", "level", "id")
    list_roles = ("options",)
    target = "label"
    has_labels = True
    metrics: ClassVar = {"accuracy": metrics.accuracy}
    default_metrics = ("accuracy",)
    hparams = MultipleChoiceHParams
    shortened = "cut (the context at its end, question and option at their beginning)"
    signatures = "multiple_choice"

    def needed_columns(self, file_format: str) -> tuple[str, ...]:
        """See Kind.needed_columns: the files of RACE say what their fields are."""
        return () if file_format == "race" else self.needed

    def check_columns(self, task: Task, split: str) -> None:
        """See Kind.check_columns: a cell of a table is no list."""
        super().check_columns(task, split)
        columns, of_table = task.columns_of(split), task.format in ("csv", "tsv")
        fits = not (columns and task.format == "race")
        check_setting(task, fits, "columns", "left out of format race")
        fits = not of_table or isinstance(columns.get("options", ()), tuple)
        check_setting(task, fits, "columns", f"a list for `options` of format {task.format}")

    def rows(self, source: Source) -> Iterator[Row]:
        return read_race(source.path)

    def label_values(self, row: dict[str, Any]) -> list[Any]:
        """See Kind.label_values: the names of all places, in letters or numbers as the label is."""
        options, label = row["options"], row["label"]
        if not isinstance(options, list):
            return [label]  # the reader says what is wrong
        letters = string.ascii_uppercase if str(label).isupper() else string.ascii_lowercase
        if isinstance(label, str) and label in {*letters} and len(options) <= len(letters):
            return list(letters[: len(options)])
        return [label, *range(len(options))] if label in (None, "") else [*range(len(options))]

    def example(self, source: Source, identity: str, where: str, row: dict) -> ChoiceExample:
        task = source.task
        with located(where):
            context, question, level = (
                typed(role, row.get(role, ""), str) for role in ("context", "question", "level")
            )
            texts, count = typed("options", row["options"], tuple[str, ...]), len(task.labels)
            if not (2 <= len(texts) <= count and all(text.strip() for text in (context, *texts))):
                raise InputError(
                    f"`context` and 2 to {count} `options` should not be empty. Received:"
                    f" {context!r:.60}, {texts!r:.200}"
                )
        value, label = row.get("label"), None
        if not (source.is_test and (value is None or value == "")):
            label = label_index(source, where, value)
            if label >= len(texts):
                raise InputError(
                    f"{where}: the label should be one of {', '.join(task.labels[: len(texts)])},"
                    f" of {len(texts)} options. Received: {value!r}"
                )
        return ChoiceExample(identity, context, question, texts, label, level)

    def check_training(self, task: Task, place: str, examples: Sequence[ChoiceExample]) -> None:
        counts = collections.Counter(task.labels[example.label] for example in examples)
        check_counts(task, place, counts)

    def defaults(self, task: Task) -> dict[str, Any]:
        """See Kind.defaults: those of section IV-A of the ALE report."""
        return {"num_train_epochs": 3.0, "max_seq_length": 384}

    def group_size(self, task: Task) -> int:
        """See Kind.group_size: the options that an example may have."""
        return len(task.labels)

    def encode(
        self,
        task: Task,
        examples: Sequence[ChoiceExample],
        vocabulary: Vocabulary,
        hparams: MultipleChoiceHParams,
    ) -> Encoded:
        """See `finetune.encoding.encode_choices`; `label` and `present` of each sequence."""
        settings = {name: getattr(hparams, name) for name in self.shaping}
        return _encode_choices(examples, _tokenizer(vocabulary), self.group_size(task), **settings)

    def head(self, task: Task, config: BackboneConfig, hparams: MultipleChoiceHParams) -> Any:
        return _head(self.group_size(task), config)

    def answers(
        self,
        task: Task,
        examples: Sequence[ChoiceExample],
        encoded: Encoded,
        outputs: Mapping[str, np.ndarray],
        hparams: MultipleChoiceHParams,
    ) -> list[int]:
        """The places of highest `score` [n] among each example's options."""
        scores = np.where(encoded.sequences["present"] > 0, outputs["score"], -np.inf)
        return scores.reshape(-1, self.group_size(task)).argmax(axis=1).tolist()

    def score(self, predicted: Predicted) -> dict[str, float | None]:
        """See Kind.score; where examples are of several levels, also `accuracy_LEVEL`."""
        scores = super().score(predicted)
        right: dict[str, list[bool]] = {}
        for example, answer in zip(predicted.examples, predicted.answers):
            right.setdefault(example.level, []).append(example.label == answer)
        if len(right) > 1:
            shares = {level or "other": np.mean(found) for level, found in sorted(right.items())}
            scores |= {f"accuracy_{name}": 100.0 * float(share) for name, share in shares.items()}
        return scores

    def collapsed(self, predicted: Predicted) -> str | None:
        return constant_label(predicted)

    def constant(self, task: Task, examples: Sequence[ChoiceExample]) -> Baseline:
        best = first_most_frequent(collections.Counter(example.label for example in examples))
        return "most frequent place", task.labels[best], [best] * len(examples)

    def baselines(self, task: Task, examples: Sequence[ChoiceExample]) -> list[Baseline]:
        """See Kind.baselines: also the options that share most words with the context."""
        found = [(rule, "", overlap.best_options(rule, examples)) for rule in overlap.RULES]
        return [*super().baselines(task, examples), *found]

    def gold(self, task: Task, example: ChoiceExample) -> str | None:
        """See Kind.gold: the name of the place."""
        return None if example.label is None else task.labels[example.label]

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """{"prediction": name of the place, "option": text, "probabilities": {name: p}}."""
        labels, example = predicted.task.labels, predicted.examples[number]
        answer = predicted.answers[number]
        row = {"prediction": labels[answer], "option": example.options[answer]}
        if "score" in predicted.outputs:
            shares = (round(float(p), 6) for p in self._probabilities(predicted, number))
            row["probabilities"] = dict(zip(labels, shares))
        return row

    def error(self, predicted: Predicted, number: int) -> Error | None:
        """The wrong options of highest probability are the largest errors."""
        example, answer = predicted.examples[number], predicted.answers[number]
        if answer == example.label:
            return None
        known = "score" in predicted.outputs
        shares = self._probabilities(predicted, number) if known else None
        share, how_sure = confidence(shares, answer)
        chosen, right = (example.options[place] for place in (answer, example.label))
        said = f"Predicted **{chosen}**{how_sure}; it is **{right}**."
        return share, said + quoted(example.question, example.context)

    def request(self, task: Task, example: ChoiceExample) -> dict[str, Any]:
        texts = {"context": example.context, "question": example.question}
        if "question" not in task.columns and task.format != "race":
            del texts["question"]
        return {**texts, "options": list(example.options)}

    def answer_of(self, task: Task, values: Mapping[str, Any]) -> int:
        return int(values["choice"])

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        places = range(len(values["probabilities"]))
        names = [labels[place] if place < len(labels) else str(place) for place in places]
        return {
            "prediction": names[values["choice"]] if values["choice"] >= 0 else "",
            "option": values["option"],
            "probabilities": dict(zip(names, values["probabilities"])),
        }

    def _probabilities(self, predicted: Predicted, number: int) -> np.ndarray:
        """The softmax over the options of an example."""
        first = number * self.group_size(predicted.task)
        count = len(predicted.examples[number].options)
        return probabilities(predicted.outputs["score"][first : first + count])

"""Choice among several options for a context and, optionally, a question about it."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from convbert.common.errors import InputError
from convbert.common.plugins import lazily
from convbert.common.settings import at_least, check_setting, typed
from convbert.finetune import metrics
from convbert.finetune.hparams import FinetuningHParams
from convbert.finetune.kinds.base import Kind, Outputs, Predicted, label_index, register

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task
    from convbert.finetune.encoding import Split
    from convbert.finetune.task_files import SplitSource
    from convbert.model import BackboneConfig

_head = lazily("convbert.model.heads.task:MultipleChoiceHead")
_softmax = lazily("scipy.special:softmax")


@dataclasses.dataclass(frozen=True)
class MultipleChoiceHParams(FinetuningHParams):
    """Hyper-parameters of multiple choice; see `data.text.choices.lay_out_choices`."""

    max_qa_length: int = field(default=128, metadata=at_least(1))  # pieces of question and option
    question_apart: bool = True  # as in the ALE report; one text in XLNet's and ALBERT's code
    fill_blank: bool = False  # the option replaces "_" in the question, as in XLNet's code


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A context, a question ("" for none) and its options."""

    id: str
    context: str
    question: str
    options: tuple[str, ...]
    label: int | None  # index of the right option; None: unlabelled


class MultipleChoice(Kind):
    """A softmax over the scores of an example's options; answers are indices of options.

    The task's labels name the options, such as A, B, C, D. If an example has fewer options, its
    group of sequences is filled up with sequences without an option.
    """

    name = "multiple_choice"
    formats: ClassVar = {"jsonl": ".jsonl", "race": None}
    needed, optional = ("context", "options", "label"), ("question", "id")
    filled: ClassVar = {"race": (*needed, *optional)}
    target = "label"
    has_labels = True
    hparams = MultipleChoiceHParams
    defaults: ClassVar = {"num_train_epochs": 3.0, "max_seq_length": 384}  # the ALE report, IV-A
    shortened = "cut (the context at its end, question and option at their beginning)"
    encode = staticmethod(lazily("convbert.finetune.encoding:encode_choices"))
    metrics: ClassVar = {"accuracy": metrics.accuracy}
    default_metrics = ("accuracy",)
    served = ("option",)
    signatures = "multiple_choice"

    def label_values(self, row: dict[str, Any]) -> list[Any]:
        """Returns the names of all options, letters or numbers like the label."""
        options, label = row["options"], row.get("label")
        if not isinstance(options, list):
            return [label]  # reading reports the error
        letters = string.ascii_uppercase if str(label).isupper() else string.ascii_lowercase
        if isinstance(label, str) and label in {*letters} and len(options) <= len(letters):
            return list(letters[: len(options)])
        return [label, *range(len(options))] if label in (None, "") else [*range(len(options))]

    def check(self, task: Task) -> None:
        super().check(task)
        spelled = {(name.isdecimal(), name.isupper()) for name in task.labels if len(name) == 1}
        check_setting(task, len(spelled) < 2, "labels", "numbers, or letters of one case")

    def check_training(self, task: Task, place: str, examples: Sequence) -> None:
        """Any training split is enough: the right option may always be the first."""

    def example(self, source: SplitSource, identity: str, row: dict) -> ChoiceExample:
        task = source.task
        context, question = (typed(n, row.get(n, ""), str) for n in ("context", "question"))
        texts, count = typed("options", row["options"], tuple[str, ...]), len(task.labels)
        if not (2 <= len(texts) <= count and all(text.strip() for text in (context, *texts))):
            raise InputError(
                f"there should be 2 to {count} `options`, and a `context`, none of them empty."
                f" Received: {context!r:.60}, {texts!r:.200}"
            )
        value, label = row.get("label"), None
        if not (source.is_test and (value is None or value == "")):
            label = label_index(task, value)
            if label >= len(texts):
                raise InputError(
                    f"the label should be one of {', '.join(task.labels[: len(texts)])}, of"
                    f" {len(texts)} options. Received: {value!r}"
                )
        return ChoiceExample(identity, context, question, texts, label)

    def group_size(self, task: Task) -> int:
        return len(task.labels)

    def head(self, task: Task, config: BackboneConfig, hparams: MultipleChoiceHParams) -> Any:
        return _head(self.group_size(task), config)

    def answers(self, task: Task, split: Split, outputs: Outputs, hparams: Any) -> list[int]:
        """Returns the index of the highest `score` [n] among each example's options."""
        scores = np.where(split.encoded.sequences["present"] > 0, outputs["score"], -np.inf)
        return scores.reshape(-1, self.group_size(task)).argmax(axis=1).tolist()

    def named(self, labels: Sequence[str], answer: int) -> str:
        """Names an option; exported models answer -1 without options."""
        return labels[answer] if answer >= 0 else ""

    def probabilities(self, predicted: Predicted, number: int) -> np.ndarray | None:
        if "score" not in predicted.outputs:
            return None
        first = number * self.group_size(predicted.task)
        count = len(predicted.examples[number].options)
        return _softmax(np.asarray(predicted.outputs["score"][first : first + count], np.float64))

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        option = predicted.examples[number].options[predicted.answers[number]]
        return {**super().row(predicted, number), "option": option}

    def request(self, task: Task, example: ChoiceExample) -> dict[str, Any]:
        values = super().request(task, example)
        if "question" not in task.columns_of(task.train) and task.format != "race":
            del values["question"]
        return values

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> int:
        return int(values["choice"])

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """Names options beyond the labels by numbers."""
        count = len(values["probabilities"])
        names = [labels[i] if i < len(labels) else str(i) for i in range(count)]
        return super().answer_row(values, names)


register(MultipleChoice())

"""What classification and regression share: a text, or a pair of texts, with one label."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError
from finetune.hparams import FinetuningHParams
from finetune.kinds.base import Kind, Outputs
from plugins import lazily
from settings import check_setting, one_of

if TYPE_CHECKING:
    from finetune.encoding import Split
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig


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
    """A label for a text, or for a pair of texts."""

    formats: ClassVar = {"tsv": ".tsv", "csv": ".csv", "jsonl": ".jsonl", "tfds": None}
    needed, optional = ("text_a", "label"), ("text_b", "id")
    target = "label"
    hparams = TextHParams
    shaping = ("max_seq_length", "double_unordered")
    shortened = "cut (of two texts the longer one first)"
    head_is_shared = True
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
        swapped = [dataclasses.replace(x, text_a=x.text_b, text_b=x.text_a) for x in examples]
        return [*examples, *swapped]

    def check_hparams(self, task: Task, hparams: TextHParams, config: BackboneConfig) -> None:
        fits = hparams.classifier == "linear" or not config.summary_layer
        check_setting(hparams, fits, "classifier", "linear: such a backbone brings its own layer")

    def answers(
        self, task: Task, split: Split, outputs: Outputs, hparams: FinetuningHParams
    ) -> list:
        values = self.values(task, outputs)
        return values[np.argsort(split.encoded.sequences["example"], kind="stable")].tolist()

    def request(self, task: Task, example: TextExample) -> dict[str, Any]:
        pair = {} if example.text_b is None else {"text_pair": example.text_b}
        return {"text": example.text_a, **pair}

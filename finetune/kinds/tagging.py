"""Tagging: one tag for each word of a sentence."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from convbert.common.errors import InputError
from convbert.common.plugins import lazily
from convbert.common.settings import check_setting, one_of, present, typed
from convbert.finetune import metrics
from convbert.finetune.hparams import FinetuningHParams
from convbert.finetune.kinds.base import Kind, Outputs, Predicted, label_index, register
from convbert.finetune.readers.conll import CONLLU_TAGS

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task
    from convbert.finetune.encoding import Split
    from convbert.finetune.task_files import SplitSource
    from convbert.model import BackboneConfig

_best_paths = lazily("convbert.finetune.encoding:best_paths")
_head = lazily("convbert.model.heads.task:TaggingHead")
_crf_head = lazily("convbert.model.heads.crf:CrfHead")


@dataclasses.dataclass(frozen=True)
class TaggingHParams(FinetuningHParams):
    """Hyper-parameters of tagging."""

    # "crf": a conditional random field chooses the tags of a sentence jointly.
    head: str = field(default="softmax", metadata=one_of("softmax", "crf"))


@dataclasses.dataclass(frozen=True)
class TaggedExample:
    """A sentence with one tag per word; `tags` are indices into `Task.labels`, None: unknown."""

    id: str
    words: tuple[str, ...]
    tags: tuple[int, ...] | None


class Tagging(Kind):
    """Predicts a label for each word; answers are tuples of indices into `Task.labels`."""

    name = "tagging"
    formats: ClassVar = {
        "conll": ".conll",
        "conllu": ".conllu",
        "jsonl": ".jsonl",
        "treebank": ".pos",
    }
    needed = ("words", "tags")
    filled: ClassVar = {"conllu": ("words",), "treebank": needed}
    target = "tags"
    has_labels = True
    hparams = TaggingHParams
    shaping = ()
    shortened = "divided between words"
    token_outputs = ("tags", "emissions")
    encode = staticmethod(lazily("convbert.finetune.encoding:encode_tags"))
    metrics: ClassVar = {
        "f1": metrics.entity_f1,
        "precision": metrics.entity_precision,
        "recall": metrics.entity_recall,
        "token_accuracy": metrics.token_accuracy,
    }
    default_metrics = ("token_accuracy",)
    served = ("words", "score")
    signatures = "tagging"

    def check(self, task: Task) -> None:
        super().check(task)
        for split in task.files if task.format == "conllu" else ():
            fits = task.columns_of(split).get("tags", "upos") in CONLLU_TAGS
            check_setting(task, fits, "columns", f"tags -> one of {', '.join(CONLLU_TAGS)}")
        plain = [tag for tag in task.labels if tag != "O" and tag[1:2] != "-"]
        fits = not plain or {*task.metrics} == {"token_accuracy"}
        check_setting(task, fits, "metrics", f"token_accuracy alone with tags such as {plain[:1]}")

    def example(self, source: SplitSource, identity: str, row: dict) -> TaggedExample:
        task, tags = source.task, row.get("tags")
        words = typed("words", row["words"], tuple[str, ...])
        if not all(words):
            raise InputError(f"`words` should not be empty. Received: {words!r:.60}")
        blank = ["_"] * len(words)  # not annotated, in CoNLL-U
        if source.is_test and tags in (None, blank) and "_" not in task.labels:
            return TaggedExample(identity, words, None)
        if not isinstance(tags, list) or len(tags) != len(words):
            raise InputError(f"`tags` should be {len(words)} tags. Received: {tags!r:.60}")
        return TaggedExample(identity, words, tuple(label_index(task, tag) for tag in tags))

    def label_values(self, row: dict[str, Any]) -> Any:
        return row["tags"]

    def whole_examples(self, hparams: TaggingHParams) -> bool:
        return hparams.head == "crf"

    def head(self, task: Task, config: BackboneConfig, hparams: TaggingHParams) -> Any:
        return (_head if hparams.head == "softmax" else _crf_head)(len(task.labels))

    def answers(self, task: Task, split: Split, outputs: Outputs, hparams: Any) -> list:
        """Returns the `tags` of words' first pieces, or the best paths of `emissions`."""
        # Sequences, and so first pieces, are in the order of the sentences and their words.
        first = split.encoded.tokens["tag_weight"] > 0
        counts = [len(example.words) for example in split.examples]
        if "emissions" in outputs:
            return _best_paths(outputs["emissions"][first], counts, outputs)
        tags, ends = outputs["tags"][first].tolist(), np.cumsum([0, *counts])
        return [tuple(tags[start:end]) for start, end in itertools.pairwise(ends)]

    def collapsed(self, predicted: Predicted) -> str | None:
        sentences = (predicted.answers, [example.tags for example in predicted.examples])
        named = (self.named(predicted.task.labels, itertools.chain(*own)) for own in sentences)
        return metrics.constant_answer(*named)

    def by_label(self, predicted: Predicted) -> dict[str, dict[str, float]]:
        if any(tag != "O" and tag[1:2] != "-" for tag in predicted.task.labels):
            return {}
        return metrics.by_entity(predicted, [example.tags for example in predicted.examples])

    def baseline(self, examples: Sequence[TaggedExample]) -> list[tuple[int, ...]]:
        """Returns the most frequent tag for each word."""
        gold = [present(example.tags) for example in examples]
        counts = collections.Counter(itertools.chain(*gold))
        best = max(sorted(counts), key=counts.__getitem__, default=0)
        return [(best,) * len(tags) for tags in gold]

    def named(self, labels: Sequence[str], answer: Iterable[int]) -> list[str]:
        return [labels[tag] for tag in answer]

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        words = list(predicted.examples[number].words)
        return {"words": words, **super().row(predicted, number)}

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> tuple[int, ...]:
        places = {label: place for place, label in enumerate(labels)}
        return tuple(places[tag] for tag in values["tags"])


register(Tagging())

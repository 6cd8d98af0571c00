"""One tag for every word of a sentence, and what may follow what in BIO and in BIOES."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from common.errors import InputError
from common.plugins import lazily
from common.settings import check_setting, one_of, present, typed
from finetune import metrics
from finetune.hparams import FinetuningHParams
from finetune.kinds.base import Baseline, Kind, Outputs
from finetune.kinds.predicted import Predicted, constant_answer
from finetune.labels import label_index
from finetune.readers.conll import CONLLU_TAGS

if TYPE_CHECKING:
    from finetune.declaration import Task
    from finetune.encoding import Split
    from finetune.task_files import Source
    from model import BackboneConfig

_best_paths = lazily("finetune.encoding:best_paths")
_head = lazily("model.heads.task:TaggingHead")
_crf_head = lazily("model.heads.crf:CrfHead")

# Of each scheme, the prefixes after which a span may go on, those that need one that goes on, and
# whether a span that may go on must.
_SCHEMES = {"bio": ("BI", "I", False), "bioes": ("BI", "IE", True)}


@dataclasses.dataclass(frozen=True)
class TaggingHParams(FinetuningHParams):
    """Hyper-parameters of tagging."""

    # "crf": tags are chosen for a sentence as a whole, by a conditional random field.
    head: str = field(default="softmax", metadata=one_of("softmax", "crf"))
    # Of the crf head: the scheme of tags outside of which it never goes.
    tag_constraints: str = field(default="none", metadata=one_of("none", *_SCHEMES))


@dataclasses.dataclass(frozen=True)
class TaggedExample:
    """A sentence with one tag per word; `tags` are indices into `Task.labels`, None: unknown."""

    id: str
    words: tuple[str, ...]
    tags: tuple[int, ...] | None


class Tagging(Kind):
    """One of the labels for each word; answers are tuples of indices into `Task.labels`."""

    name = "tagging"
    formats: ClassVar = {
        "conll": ".conll",
        "conllu": ".conllu",
        "jsonl": ".jsonl",
        "tfds": None,
        "treebank": ".pos",
    }
    needed = ("words", "tags")
    filled: ClassVar = {"conllu": ("words",), "treebank": needed}
    target = "tags"
    has_labels = True
    hparams = TaggingHParams
    shaping = ("max_seq_length", "tag_constraints")  # which `training_examples` checks
    shortened = "divided between words"
    head_is_shared = True
    token_outputs = ("tags", "emissions")
    encode = staticmethod(lazily("finetune.encoding:encode_tags"))
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

    def example(self, source: Source, identity: str, where: Any, row: dict) -> TaggedExample:
        task, tags, places = source.task, row.get("tags"), row.get("tag_places")
        words = typed("words", row["words"], tuple[str, ...])
        listed = tags if isinstance(tags, list) else []
        blank = tags is None or (listed and all(tag == "_" for tag in listed))
        if source.is_test and blank and "_" not in task.labels:
            return TaggedExample(identity, words, None)  # "_": not annotated, in CoNLL-U
        if not isinstance(tags, list) or len(tags) != len(words):
            raise InputError(f"`tags` should be {len(words)} tags. Received: {tags!r:.60}")
        indices = (
            label_index(source, places[place] if places else where, tag)
            for place, tag in enumerate(tags)
        )
        return TaggedExample(identity, words, tuple(indices))

    def label_values(self, row: dict[str, Any]) -> Any:
        return row["tags"]

    def training_examples(
        self, task: Task, examples: list[TaggedExample], hparams: TaggingHParams
    ) -> list[TaggedExample]:
        if hparams.tag_constraints != "none":
            _check_scheme(task, examples, hparams.tag_constraints)
        return examples

    def check_hparams(self, task: Task, hparams: TaggingHParams, config: BackboneConfig) -> None:
        fits = hparams.head == "crf" or hparams.tag_constraints == "none"
        check_setting(hparams, fits, "tag_constraints", '"none" without "head": "crf"')

    def whole_examples(self, hparams: TaggingHParams) -> bool:
        return hparams.head == "crf"

    def head(self, task: Task, config: BackboneConfig, hparams: TaggingHParams) -> Any:
        if hparams.head == "softmax":
            return _head(len(task.labels))
        scheme = hparams.tag_constraints
        return _crf_head(
            len(task.labels), None if scheme == "none" else forbidden(task.labels, scheme)
        )

    def answers(
        self, task: Task, split: Split, outputs: Outputs, hparams: FinetuningHParams
    ) -> list[tuple[int, ...]]:
        """`tags` int [total] of the first piece of each word, or the best path of `emissions`."""
        # Sequences are in the order of the sentences and of their words: so are the first pieces.
        first = split.encoded.tokens["tag_weight"] > 0
        counts = [len(example.words) for example in split.examples]
        if "emissions" in outputs:
            return _best_paths(outputs["emissions"][first], counts, outputs)
        tags, ends = outputs["tags"][first].tolist(), np.cumsum([0, *counts])
        return [tuple(tags[start:end]) for start, end in itertools.pairwise(ends)]

    def collapsed(self, predicted: Predicted) -> str | None:
        sentences = (predicted.answers, [example.tags for example in predicted.examples])
        named = (self.named(predicted.task.labels, itertools.chain(*own)) for own in sentences)
        return constant_answer(*named)

    def by_label(self, predicted: Predicted) -> dict[str, dict[str, float]]:
        """Of types of entities where tags are of spans, else of tags."""
        gold = [example.tags for example in predicted.examples]
        if all(tag == "O" or tag[1:2] == "-" for tag in predicted.task.labels):
            return metrics.by_entity(predicted, gold)
        gold, answers = (list(itertools.chain(*own)) for own in (gold, predicted.answers))
        return metrics.by_label(Predicted(predicted.task, gold, answers), gold)

    def baselines(self, task: Task, examples: Sequence[TaggedExample]) -> list[Baseline]:
        gold = [present(example.tags) for example in examples]
        counts = collections.Counter(itertools.chain(*gold))
        best = max(sorted(counts), key=counts.__getitem__, default=0)
        answers = [(best,) * len(tags) for tags in gold]
        return [("most frequent tag", task.labels[best], answers)]

    def named(self, labels: Sequence[str], answer: Iterable[int]) -> list[str]:
        return [labels[tag] for tag in answer]

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        words = list(predicted.examples[number].words)
        return {"words": words, **super().row(predicted, number)}

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> tuple[int, ...]:
        places = {label: place for place, label in enumerate(labels)}
        return tuple(places[tag] for tag in values["tags"])


class Forbidden(NamedTuple):
    """Tags that are not allowed: bool start [L], transitions [L, L] from row to column, end [L]."""

    start: np.ndarray
    transitions: np.ndarray
    end: np.ndarray


def forbidden(labels: Sequence[str], scheme: str) -> Forbidden:
    """Returns the tags a scheme, "bio" or "bioes", forbids, for labels such as B-PER and O."""
    opens, continues, must = _SCHEMES[scheme]

    def wrong(before: str, after: str) -> bool:
        """Returns True if `after` may not follow `before`; beyond the sentence, tags are "O"."""
        is_open, goes_on = before[0] in opens and before[1:2] == "-", after[0] in continues
        goes_on &= after[1:2] == "-"
        if is_open and goes_on:
            return before[2:] != after[2:]
        return goes_on or (is_open and must)

    return Forbidden(
        np.array([wrong("O", label) for label in labels]),
        np.array([[wrong(before, after) for after in labels] for before in labels]),
        np.array([wrong(label, "O") for label in labels]),
    )


def _check_scheme(task: Task, examples: Sequence[TaggedExample], scheme: str) -> None:
    """Raises InputError for the first sentence whose tags are not of the scheme."""
    start, transitions, end = forbidden(task.labels, scheme)
    for example in examples:
        tags = present(example.tags)
        wrong = [
            *(tags[i] for i in range(1, len(tags)) if transitions[tags[i - 1], tags[i]]),
            *(tag for tag in tags[:1] if start[tag]),
            *(tag for tag in tags[-1:] if end[tag]),
        ]
        if wrong:
            raise InputError(
                f"{task.name}, {task.train} sentence {example.id}: the tags should be of the "
                f'scheme "tag_constraints": "{scheme}". Received: {task.labels[wrong[0]]}, in '
                f"{' '.join(example.words)!r:.80}"
            )

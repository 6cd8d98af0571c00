"""One tag for every word of a sentence."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError, located
from finetune import metrics
from finetune.hparams import FinetuningHParams
from finetune.kinds.base import Error, Kind
from finetune.kinds.predicted import Predicted, constant_answer, first_most_frequent, quoted
from finetune.labels import check_counts, label_index
from finetune.readers import conll, treebank
from finetune.tag_schemes import SCHEMES, check_scheme, forbidden
from plugins import lazily
from settings import check_setting, one_of, typed

if TYPE_CHECKING:
    from data.vocabulary import Vocabulary
    from finetune.encoded import Encoded
    from finetune.readers.tables import Row
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

_encode_tags = lazily("finetune.encoding:encode_tags")
_tokenizer = lazily("data.tokenizers:create_tokenizer")
_head = lazily("model.heads.task:TaggingHead")
_crf_head = lazily("model.heads.crf:CrfHead")
_best_paths = lazily("finetune.best_paths:best_paths")

_TREEBANKS = {"treebank": treebank.read_treebank, "brown": treebank.read_brown}


@dataclasses.dataclass(frozen=True)
class TaggingHParams(FinetuningHParams):
    """Hyper-parameters of tagging."""

    # "crf": tags are chosen for a sentence as a whole, by a conditional random field.
    head: str = field(default="softmax", metadata=one_of("softmax", "crf"))
    # Of the crf head: the scheme of tags outside of which it never goes.
    tag_constraints: str = field(default="none", metadata=one_of("none", *SCHEMES))


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
        "brown": None,
    }
    needed = ("words", "tags")
    target = "tags"
    has_labels = True
    metrics: ClassVar = {
        "f1": metrics.entity_f1,
        "precision": metrics.entity_precision,
        "recall": metrics.entity_recall,
        "token_accuracy": metrics.token_accuracy,
    }
    default_metrics = ("token_accuracy",)
    hparams = TaggingHParams
    shaping = ("max_seq_length", "tag_constraints")  # which `training_examples` checks
    shortened = "divided between words"
    token_outputs = ("tags", "emissions")
    signatures = "tagging"

    def needed_columns(self, file_format: str) -> tuple[str, ...]:
        """See Kind.needed_columns: CoNLL-U says where the words are, word/TAG both."""
        if file_format in _TREEBANKS:
            return ()
        return ("tags",) if file_format == "conllu" else self.needed

    def check_columns(self, task: Task, split: str) -> None:
        """See Kind.check_columns: CoNLL-U has columns of its own."""
        super().check_columns(task, split)
        fits = task.format != "conllu" or task.columns_of(split)["tags"] in conll.CONLLU_TAGS
        check_setting(task, fits, "columns", f"tags -> one of {', '.join(conll.CONLLU_TAGS)}")

    def located(self, file_format: str, path: str) -> str | None:
        """See Kind.located: sections of a treebank."""
        return treebank.located(path) if file_format in _TREEBANKS else None

    def check_metrics(self, task: Task) -> None:
        """See Kind.check_metrics: all but the accuracy are of spans."""
        super().check_metrics(task)
        plain = [tag for tag in task.labels if tag != "O" and tag[1:2] != "-"]
        fits = not plain or {*task.metrics} == {"token_accuracy"}
        check_setting(task, fits, "metrics", f"token_accuracy alone with tags such as {plain[:1]}")

    def rows(self, source: Source) -> Iterator[Row]:
        if reader := _TREEBANKS.get(source.task.format):
            return reader(source.path)
        if source.task.format == "conllu":
            return conll.read_conllu(source.path, source.columns["tags"])
        return conll.read_conll(source.path, source.columns, tagged=not source.is_test)

    def example(self, source: Source, identity: str, where: str, row: dict) -> TaggedExample:
        task, tags, places = source.task, row.get("tags"), row.get("tag_places")
        with located(where):
            words = typed("words", row["words"], tuple[str, ...])
        listed = isinstance(tags, list)
        blank = tags is None or (listed and tags and all(tag == "_" for tag in tags))
        if source.is_test and blank and "_" not in task.labels:
            return TaggedExample(identity, words, None)  # "_": not annotated, in CoNLL-U
        if not listed or len(tags) != len(words):
            raise InputError(f"{where}: `tags` should be {len(words)} tags. Received: {tags!r:.60}")
        indices = (
            label_index(source, places[place] if places else where, tag)
            for place, tag in enumerate(tags)
        )
        return TaggedExample(identity, words, tuple(indices))

    def label_values(self, row: dict[str, Any]) -> Any:
        return row["tags"]

    def check_training(self, task: Task, place: str, examples: Sequence[TaggedExample]) -> None:
        tags = (task.labels[tag] for example in examples for tag in example.tags)
        check_counts(task, place, collections.Counter(tags))

    def training_examples(
        self, task: Task, examples: list[TaggedExample], hparams: TaggingHParams
    ) -> list[TaggedExample]:
        """See Kind.training_examples: what is never answered cannot be learned."""
        if hparams.tag_constraints != "none":
            check_scheme(task, examples, hparams.tag_constraints)
        return examples

    def check_hparams(self, hparams: TaggingHParams) -> None:
        fits = hparams.head == "crf" or hparams.tag_constraints == "none"
        check_setting(hparams, fits, "tag_constraints", '"none" without "head": "crf"')

    def whole_examples(self, hparams: TaggingHParams) -> bool:
        """See Kind.whole_examples: the windows of a sentence are one chain."""
        return hparams.head == "crf"

    def encode(
        self,
        task: Task,
        examples: Sequence[TaggedExample],
        vocabulary: Vocabulary,
        hparams: FinetuningHParams,
    ) -> Encoded:
        """One sequence, or several, per sentence; see `finetune.encoding.encode_tags`."""
        return _encode_tags(examples, _tokenizer(vocabulary), hparams.max_seq_length)

    def head(self, task: Task, config: BackboneConfig, hparams: FinetuningHParams) -> Any:
        if hparams.head == "softmax":
            return _head(len(task.labels))
        scheme = hparams.tag_constraints
        return _crf_head(
            len(task.labels), None if scheme == "none" else forbidden(task.labels, scheme)
        )

    def answers(
        self,
        task: Task,
        examples: Sequence[TaggedExample],
        encoded: Encoded,
        outputs: Mapping[str, np.ndarray],
        hparams: FinetuningHParams,
    ) -> list[tuple[int, ...]]:
        """`tags` int [total] of the first piece of each word, or the best path of `emissions`."""
        # Sequences are in the order of the sentences and of their words: so are the first pieces.
        first = encoded.tokens["tag_weight"] > 0
        if "emissions" in outputs:
            counts = [len(example.words) for example in examples]
            return _best_paths(outputs["emissions"][first], counts, outputs)
        tags = outputs["tags"][first].tolist()
        ends = np.cumsum([0, *(len(example.words) for example in examples)])
        return [tuple(tags[start:end]) for start, end in itertools.pairwise(ends)]

    def collapsed(self, predicted: Predicted) -> str | None:
        answers = [tag for tags in predicted.answers for tag in tags]
        gold = [tag for example in predicted.examples for tag in example.tags]
        return constant_answer(answers, gold, lambda tag: repr(predicted.task.labels[tag]))

    def by_label(self, predicted: Predicted) -> dict[str, dict[str, float]]:
        """See Kind.by_label: of types of entities where tags are of spans, else of tags."""
        task, gold = predicted.task, [example.tags for example in predicted.examples]
        if all(tag == "O" or tag[1:2] == "-" for tag in task.labels):
            return metrics.by_entity(task, gold, predicted.answers)
        flat = [
            [tag for tags in sentences for tag in tags] for sentences in (gold, predicted.answers)
        ]
        return metrics.by_label(*flat, task.labels)

    def constant(
        self, task: Task, examples: Sequence[TaggedExample]
    ) -> tuple[str, str, list[tuple[int, ...]]]:
        best = first_most_frequent(
            collections.Counter(tag for example in examples for tag in example.tags)
        )
        answers = [(best,) * len(example.tags) for example in examples]
        return "most frequent tag", task.labels[best], answers

    def gold(self, task: Task, example: TaggedExample) -> list[str] | None:
        return None if example.tags is None else [task.labels[tag] for tag in example.tags]

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """{"words": [...], "prediction": [tag names]}."""
        tags = [predicted.task.labels[tag] for tag in predicted.answers[number]]
        return {"words": list(predicted.examples[number].words), "prediction": tags}

    def error(self, predicted: Predicted, number: int) -> Error | None:
        """The sentences with most wrong tags are the largest errors."""
        example, labels = predicted.examples[number], predicted.task.labels
        words, wrong = [], 0
        for word, answer, gold in zip(example.words, predicted.answers[number], example.tags):
            if answer != gold:
                wrong += 1
                word = f"**{word}** [{labels[answer]}, not {labels[gold]}]"
            words.append(word)
        if not wrong:
            return None
        return float(wrong), f"{wrong} of {len(words)} tags wrong." + quoted(" ".join(words))

    def request(self, task: Task, example: TaggedExample) -> dict[str, Any]:
        return {"words": list(example.words)}

    def answer_of(self, task: Task, values: Mapping[str, Any]) -> tuple[int, ...]:
        places = {label: place for place, label in enumerate(task.labels)}
        return tuple(places[tag] for tag in values["tags"])

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        row = {"words": values["words"], "prediction": values["tags"]}
        return row | {name: values[name] for name in ("score",) if name in values}

"""Text embeddings, learned from pairs that belong together or have scores of similarity."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from convbert.common.errors import InputError
from convbert.common.plugins import lazily
from convbert.common.settings import above, check_setting, one_of
from convbert.finetune import metrics
from convbert.finetune.hparams import DROPOUT, FinetuningHParams
from convbert.finetune.kinds.base import Kind, Outputs, Predicted, register
from convbert.finetune.kinds.texts import number_of, texts_of

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task
    from convbert.finetune.encoding import Split
    from convbert.finetune.task_files import SplitSource
    from convbert.model import BackboneConfig

_head = lazily("convbert.model.heads.embedding:EmbeddingHead")


@dataclasses.dataclass(frozen=True)
class EmbeddingHParams(FinetuningHParams):
    """Hyper-parameters of text embeddings."""

    pooling: str = field(default="mean", metadata=one_of("mean", "pooled"))  # of the hidden states
    # Of pairs without scores: the factor of cosines in the softmax, 1 / temperature (SimCSE: 20).
    scale: float = field(default=20.0, metadata=above(0))
    # Shorter vectors, the first elements, whose losses are added (Matryoshka, arXiv 2205.13147).
    dimensions: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class EmbeddingExample:
    """Two texts that belong together, and a third that does not; or two texts and a score."""

    id: str
    text_a: str
    text_b: str
    negative: str | None
    label: float | None


def reciprocal_rank(predicted: Predicted, gold: list) -> float:
    """Returns the mean of 1 / rank of each first text's second one among all second texts."""
    return float(np.mean(1.0 / _ranks(predicted)))


def nearest(predicted: Predicted, gold: list) -> float:
    """Returns the share of first texts whose second one is the nearest of all second texts."""
    return float(np.mean(_ranks(predicted) == 1))


def _ranks(predicted: Predicted) -> np.ndarray:
    """Returns the rank, from 1, of each first text's second one; of equal ones, the worst.

    Second texts that are the same, are the first text, or belong to it, too, do not compete. Pairs
    of one text, as SimCSE's, have no rank.
    """
    vectors, examples = np.asarray(predicted.outputs["embedding"], np.float32), predicted.examples
    first, second = (vectors[i :: len(vectors) // len(examples)] for i in range(2))
    numbers: dict[str, int] = {}  # of texts, which are compared faster
    a, b = (
        np.array([numbers.setdefault(getattr(x, name), len(numbers)) for x in examples])
        for name in ("text_a", "text_b")
    )
    ranks, ranked = [], np.flatnonzero(a != b)
    for block in np.array_split(ranked, len(ranked) // 256 + 1):
        cosines, own, text = first[block] @ second.T, b[block, None], a[block, None]
        others = (b != own) & (a != text) & (b != text)
        nearer = cosines >= cosines[np.arange(len(block)), block][:, None]
        ranks.append(1.0 + np.count_nonzero(others & nearer, axis=1))
    return np.concatenate(ranks)


def _of_scores(metric: metrics.Metric) -> metrics.Metric:
    return lambda predicted, gold: math.nan if None in gold else metric(predicted, gold)


class Embedding(Kind):
    """Learns vectors whose cosine tells which texts belong together.

    Of pairs without `label`, the second text of every other pair of a batch is a negative, beside
    the pair's own `negative` (sentence-transformers' MultipleNegativesRankingLoss; SimCSE with the
    same column as both texts, which differ by dropout). With `label`, the cosine learns the score
    as a share of `label_range`. Answers are cosines.
    """

    name = "embedding"
    formats: ClassVar = {"tsv": ".tsv", "csv": ".csv", "jsonl": ".jsonl"}
    target = "label"
    needed, optional = ("text_a", "text_b"), ("negative", "label", "id")
    hparams = EmbeddingHParams
    shaping = DROPOUT  # which two equal texts of a pair need
    encode = staticmethod(lazily("convbert.finetune.encoding:encode_embedding"))
    metrics: ClassVar = {
        "spearman": _of_scores(metrics.spearman),
        "pearson": _of_scores(metrics.pearson),
        "mrr": reciprocal_rank,
        "nearest": nearest,
    }
    default_metrics = ("spearman", "pearson")
    fields = ("label_range", "lenient")
    signatures = "embedding"
    varied = ("negative", "label")

    def default_metrics_of(self, roles: Collection[str]) -> tuple[str, ...]:
        return self.default_metrics if "label" in roles else ("mrr", "nearest")

    def check(self, task: Task) -> None:
        super().check(task)
        scored = "label" in task.columns_of(task.train)
        expected = "without `negative`, as the texts have scores"
        check_setting(task, not (scored and self.group_size(task) == 3), "columns", expected)
        ranked = {*task.metrics} & {"mrr", "nearest"}
        dev = [split for split in task.dev[:1] if "label" not in task.columns_of(split)]
        expected = f"mrr or nearest for the split {dev and dev[0]!r}, which has no `label`"
        check_setting(task, not dev or task.metrics[0] in ranked, "metrics", expected)

    def example(self, source: SplitSource, identity: str, row: dict) -> EmbeddingExample:
        texts = texts_of(row, ("text_a", "text_b", "negative"), source.task.lenient)
        a, b, negative = texts["text_a"], texts["text_b"], texts.get("negative")
        label = number_of(source, row["label"]) if "label" in row else None
        return EmbeddingExample(identity, a, b, negative, label)

    def training_examples(self, task: Task, examples: list, hparams: EmbeddingHParams) -> list:
        if "label" in task.columns_of(task.train):
            return examples
        place = f"The training split of task {task.name}"
        if min(len({x.text_a for x in examples}), len({x.text_b for x in examples})) < 2:
            raise InputError(f"{place} should have two pairs that differ, as one has no negatives")
        differ = any(x.text_a != x.text_b for x in examples)
        differ = differ or any(getattr(hparams, rate) for rate in DROPOUT)
        expected = "above 0, as both texts of a pair are one, whose vectors differ by dropout"
        check_setting(hparams, differ, DROPOUT[0], expected)
        return examples

    def check_hparams(self, task: Task, hparams: EmbeddingHParams, config: BackboneConfig) -> None:
        D = config.hidden_size
        sizes, columns, G = hparams.dimensions, task.columns_of(task.train), self.group_size(task)
        fits = all(0 < size < D for size in sizes) and len({*sizes}) == len(sizes)
        check_setting(hparams, fits, "dimensions", f"different sizes from 1 to {D - 1}")
        if "label" in columns:
            check_setting(hparams, hparams.scale == 20, "scale", "left out of texts with scores")
            return
        fits = hparams.train_batch_size >= 2 * G
        expected = f"at least {2 * G}, the texts of two examples, as one has no negatives"
        check_setting(hparams, fits, "train_batch_size", expected)

    def group_size(self, task: Task) -> int:
        return 3 if "negative" in task.columns_of(task.train) else 2

    def head(self, task: Task, config: BackboneConfig, hparams: EmbeddingHParams) -> Any:
        scored = "label" in task.columns_of(task.train)
        shape = {"pooling": hparams.pooling, "dimensions": hparams.dimensions}
        return _head(self.group_size(task), scored=scored, scale=hparams.scale, **shape)

    def answers(self, task: Task, split: Split, outputs: Outputs, hparams: Any) -> list[float]:
        """Returns the cosines of the first two texts, from `embedding` [n * G, D]."""
        vectors, G = np.asarray(outputs["embedding"], np.float64), self.group_size(task)
        return np.sum(vectors[::G] * vectors[1::G], -1).tolist()

    def collapsed(self, predicted: Predicted) -> str | None:
        pairs = zip(predicted.examples, predicted.answers, strict=True)
        found = [cosine for x, cosine in pairs if x.text_a != x.text_b]  # unlike SimCSE's
        constant = len(found) > 1 and np.ptp(found) <= metrics.CONSTANT
        return f"every cosine is {found[0]:.4g}" if constant else None

    def request(self, task: Task, example: EmbeddingExample) -> dict[str, Any]:
        return {"text": example.text_a, "text_pair": example.text_b}

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """Returns the vector of one text."""
        return {"prediction": np.asarray(values["embedding"]).tolist()}


register(Embedding())

"""Reranking: the relevance of candidates to a query, each read together with the query."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from convbert.common.errors import InputError
from convbert.common.plugins import lazily
from convbert.common.settings import at_least, one_of, present, typed
from convbert.finetune import metrics
from convbert.finetune.hparams import FinetuningHParams
from convbert.finetune.kinds.base import Kind, Outputs, Predicted, register

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task
    from convbert.finetune.encoding import Split
    from convbert.finetune.task_files import SplitSource
    from convbert.model import BackboneConfig

_head = lazily("convbert.model.heads.task:RerankingHead")


@dataclasses.dataclass(frozen=True)
class RerankingHParams(FinetuningHParams):
    """Hyper-parameters of reranking."""

    # "listwise": a softmax over the candidates of a query (ListNet, Cao et al. 2007); "binary": a
    # sigmoid for each, relevant or not.
    loss: str = field(default="listwise", metadata=one_of("listwise", "binary"))
    # In training: the most relevant ones, and the first others, at least half if there are as many.
    max_candidates: int = field(default=8, metadata=at_least(2))


@dataclasses.dataclass(frozen=True)
class RerankingExample:
    """A query, its candidates, and how relevant each is: 0 is not; None: unknown."""

    id: str
    query: str
    candidates: tuple[str, ...]
    relevance: tuple[float, ...] | None


class Reranking(Kind):
    """A score for each candidate of a query; answers are tuples of scores (logits).

    Metrics are means over the queries with a relevant candidate among those given.
    """

    name = "reranking"
    formats: ClassVar = {"jsonl": ".jsonl"}
    needed = ("query", "candidates", "relevance")
    target = "relevance"
    hparams = RerankingHParams
    shaping = ("max_candidates",)
    shortened = "cut (of query and candidate the longer one first)"
    encode = staticmethod(lazily("convbert.finetune.encoding:encode_candidates"))
    metrics: ClassVar = {
        "mrr@10": metrics.of_rankings(metrics.reciprocal_rank, 10),
        "ndcg@10": metrics.of_rankings(metrics.ndcg, 10),
    }
    default_metrics = ("mrr@10", "ndcg@10")
    signatures = "reranking"

    def example(self, source: SplitSource, identity: str, row: dict) -> RerankingExample:
        query = row["query"] if isinstance(row["query"], str) else ""
        texts = typed("candidates", row["candidates"], tuple[str, ...])
        if not all(text.strip() for text in (query, *texts)) or not texts:
            raise InputError(
                f"`query` and `candidates` should be texts that are not empty. Received:"
                f" {query!r:.60}, {texts!r:.200}"
            )
        value = row.get("relevance")
        if source.is_test and not value:
            return RerankingExample(identity, query, texts, None)
        relevance = typed("relevance", value, tuple[float, ...])
        if len(relevance) != len(texts) or min(relevance) < 0:
            raise InputError(
                f"`relevance` should be {len(texts)} numbers of at least 0. Received: {value!r:.60}"
            )
        return RerankingExample(identity, query, texts, relevance)

    def training_examples(self, task: Task, examples: list, hparams: RerankingHParams) -> list:
        """Limits candidates to `max_candidates`; leaves out queries without a relevant one."""
        relevant = [x for x in examples if any(present(x.relevance))]
        chosen = [_shortened(x, hparams.max_candidates) for x in relevant]
        if not any(min(present(x.relevance)) < max(present(x.relevance)) for x in chosen):
            raise InputError(
                f"The training split of task {task.name} should have a query with candidates of"
                f" different relevance. Received: {len(examples)} queries"
            )
        return chosen

    def note(self, examples: Sequence) -> str:
        count = sum(x.relevance is not None and not any(x.relevance) for x in examples)
        said = f"{count:,} of {len(examples):,} queries have no relevant candidate and do not count"
        return said if count else ""

    def whole_examples(self, hparams: RerankingHParams) -> bool:
        return hparams.loss == "listwise"

    def head(self, task: Task, config: BackboneConfig, hparams: RerankingHParams) -> Any:
        return _head(config, listwise=hparams.loss == "listwise")

    def answers(self, task: Task, split: Split, outputs: Outputs, hparams: Any) -> list:
        """Returns the `score` [n] of each query's candidates, in their order."""
        ends = np.cumsum([len(example.candidates) for example in split.examples])
        return [tuple(own.tolist()) for own in np.split(outputs["score"], ends[:-1])]

    def collapsed(self, predicted: Predicted) -> str | None:
        several = [scores for scores in predicted.answers if len(scores) > 1]
        constant = several and all(np.ptp(scores) <= metrics.CONSTANT for scores in several)
        return "all candidates of a query have one score" if constant else None

    def named(self, labels: Sequence[str], answer: Sequence[float]) -> list[float]:
        return list(answer)

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(map(float, values["scores"]))


def _shortened(example: RerankingExample, count: int) -> RerankingExample:
    """Keeps at most `count` candidates, and of these at least half that are not relevant."""
    grades = present(example.relevance)
    relevant = sorted(np.flatnonzero(grades), key=lambda i: -grades[i])
    others = np.flatnonzero(np.equal(grades, 0))[: max(count // 2, count - len(relevant))]
    order = [*relevant[: count - len(others)], *others]
    texts = tuple(example.candidates[i] for i in order)
    return RerankingExample(example.id, example.query, texts, tuple(grades[i] for i in order))


register(Reranking())

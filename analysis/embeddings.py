"""Scores of a model's vectors of texts before fine-tuning: similarity, search, isotropy."""

from __future__ import annotations

import os
import re

import numpy as np
from scipy import stats

from convbert.common.errors import InputError
from convbert.finetune.declaration import load_task
from convbert.finetune.readers.questions import read_squad
from convbert.finetune.task_files import read_split, resolve_labels
from convbert.serving import beir
from convbert.serving.model import load
from convbert.serving.search import unit, whitening

# White space after the end of a sentence and before what begins one.
_BETWEEN = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(\[])")


def answers_in_sentences(path: str) -> beir.DataSet:
    """Returns search for sentences: questions of a SQuAD file, and the sentences of their answers.

    Documents are the sentences of all paragraphs with a question. Unanswerable ones are left out.
    Source: Ahmad et al. 2019, "ReQA" (arXiv 1907.04780).
    """
    documents: dict[str, str] = {}  # text -> id
    queries: dict[str, str] = {}
    relevant: dict[str, dict[str, float]] = {}
    for _, row in read_squad(path):
        context = row["context"]
        ends = [*(match.end() for match in _BETWEEN.finditer(context)), len(context)]
        texts = [context[a:b].strip() for a, b in zip([0, *ends], ends)]
        ids = [documents.setdefault(text, f"s{len(documents)}") for text in texts]
        starts = {answer["answer_start"] for answer in row["answers"]}
        if starts and not row.get("is_impossible"):
            queries[row["id"]] = row["question"]
            found = np.searchsorted(ends, sorted(starts), side="right")
            relevant[row["id"]] = {ids[place]: 1.0 for place in found}
    if not queries:
        raise InputError(f"{path}: there should be an answerable question. Received: none")
    return beir.DataSet({name: text for text, name in documents.items()}, queries, relevant)


def embedding_scores(
    model_dir: str, data_dir: str, questions: str, max_seq_length: int | None = None
) -> dict[str, float]:
    """Returns scores of the means of hidden states, in points; `questions` is a SQuAD file.

    `similarity` is Spearman's correlation of cosines on STS-B's development set, `search` nDCG@10
    (see `answers_in_sentences`); `_whitened` after a whitening of their own texts. Of sentences,
    `mean_cosine` is that of random pairs, `first_component` the first axis' share of the variance.
    """
    model = load(model_dir, max_seq_length=max_seq_length)
    task = resolve_labels(load_task("sts"), data_dir)
    pairs = read_split(task, data_dir, "dev")
    data = answers_in_sentences(os.path.join(data_dir, questions))
    a, b = (model.embed([getattr(pair, of) for pair in pairs]) for of in ("text_a", "text_b"))
    asked, found = (model.embed([*of.values()]) for of in (data.queries, data.documents))
    scores = {}
    for name, of_pairs, of_search in (
        ("", unit, unit),
        ("_whitened", whitening(np.concatenate([a, b])), whitening(found)),
    ):
        cosines = np.sum(of_pairs(a) * of_pairs(b), -1)
        correlation = stats.spearmanr(cosines, [pair.label for pair in pairs]).statistic
        ranked = beir.by_vectors(data, of_search(asked), of_search(found))
        scores[f"similarity{name}"] = 100.0 * float(correlation)
        scores[f"search{name}"] = float(beir.scores(data, ranked)["nDCG@10"].mean())
    variances = np.linalg.eigvalsh(np.cov(found, rowvar=False))
    others = np.random.default_rng(0).permutation(unit(found))
    return {
        **scores,
        "mean_cosine": 100.0 * float(np.mean(np.sum(unit(found) * others, -1))),
        "first_component": 100.0 * float(variances[-1] / variances.sum()),
    }

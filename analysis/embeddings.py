"""Scores of a model's vectors of texts: similarity, search, isotropy."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from scipy import stats

from convbert.common.errors import InputError
from convbert.finetune.declaration import load_task
from convbert.finetune.frames import fine_tune
from convbert.finetune.readers.questions import read_squad
from convbert.finetune.task_files import read_split, resolve_labels
from convbert.pretrain.load import load_objective
from convbert.serving import beir
from convbert.serving.load import load_model_directory, word_vectors
from convbert.serving.model import load
from convbert.serving.search import unit, whitening
from convbert.serving.signatures.network import Network

Embed = Callable[[Sequence[str]], np.ndarray]  # maps n texts to vectors [n, D]
# White space after the end of a sentence and before what begins one.
_BETWEEN = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(\[])")
_TUNING = {"train_batch_size": 128, "eval_batch_size": 128, "learning_rate": 1e-4,
           "layerwise_lr_decay": 0, "loss_reduction": "mean", "precision": "float32"}  # fmt: skip
_SIMCSE_SENTENCES = 8000
_BATCH = 256  # texts whose states of all layers are in memory


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


class Scorer:
    """The texts of the scores: STS-B's pairs, and search for the sentences of answers.

    `questions` is a SQuAD file in `data_dir`.
    """

    def __init__(self, data_dir: str, questions: str):
        self.pairs = _sts_pairs(data_dir, "dev")
        self.data = answers_in_sentences(os.path.join(data_dir, questions))

    def vectors(self, embed: Embed) -> list[np.ndarray]:
        """Returns those of the pairs' first texts, their second ones, queries and documents."""
        pairs = (self.pairs[of].tolist() for of in ("text_a", "text_b"))
        search = ([*of.values()] for of in (self.data.queries, self.data.documents))
        return [embed(of) for of in (*pairs, *search)]

    def scores(self, vectors: Sequence[np.ndarray]) -> dict[str, float]:
        """Returns scores of `vectors`, in points.

        `similarity` is Spearman's correlation of cosines on STS-B's development set, `search`
        nDCG@10 (see `answers_in_sentences`); `_whitened` after a whitening of their own texts.
        """
        a, b, asked, found = vectors
        scores = {}
        for name, of_pairs, of_search in (
            ("", unit, unit),
            ("_whitened", whitening(np.concatenate([a, b])), whitening(found)),
        ):
            cosines = np.sum(of_pairs(a) * of_pairs(b), -1)
            correlation = stats.spearmanr(cosines, self.pairs["label"]).statistic
            ranked = beir.by_vectors(self.data, of_search(asked), of_search(found))
            scores[f"similarity{name}"] = 100.0 * float(correlation)
            scores[f"search{name}"] = float(beir.scores(self.data, ranked)["nDCG@10"].mean())
        return scores


def _sts_pairs(data_dir: str, split: str) -> pd.DataFrame:
    examples = read_split(resolve_labels(load_task("sts"), data_dir), data_dir, split)
    rows = [(pair.text_a, pair.text_b, pair.label) for pair in examples]
    return pd.DataFrame(rows, columns=["text_a", "text_b", "label"])


def embedding_scores(
    model_dir: str,
    data_dir: str,
    questions: str,
    max_seq_length: int | None = None,
    after: str | None = None,
    train_questions: str | None = None,
) -> dict[str, float]:
    """Returns scores of means of hidden states, see `Scorer`, and of their isotropy, in points.

    Of sentences, `mean_cosine` is that of random pairs, `first_component` the first axis' share of
    the variance. `after` is the fine-tuning before: see `training_table`.
    """
    scorer = Scorer(data_dir, questions)
    if after is None:
        vectors = scorer.vectors(load(model_dir, max_seq_length=max_seq_length).embed)
    else:
        train = training_table(after, data_dir, train_questions)
        with tuned(model_dir, train, after, max_seq_length) as folder:
            vectors = scorer.vectors(load(folder).embed)
    found = vectors[-1]
    variances = np.linalg.eigvalsh(np.cov(found, rowvar=False))
    others = np.random.default_rng(0).permutation(unit(found))
    return {
        **scorer.scores(vectors),
        "mean_cosine": 100.0 * float(np.mean(np.sum(unit(found) * others, -1))),
        "first_component": 100.0 * float(variances[-1] / variances.sum()),
    }


def training_table(after: str, data_dir: str, train_questions: str | None) -> pd.DataFrame:
    """Returns the pairs to fine-tune on.

    "simcse": 8,000 sentences of STS-B's training set and of the paragraphs of `train_questions`, a
    SQuAD file, each with itself; "pairs": its questions with the sentences of their answers;
    "scores": STS-B's training pairs with their scores.
    """
    if after == "scores":
        return _sts_pairs(data_dir, "train")
    data = answers_in_sentences(os.path.join(data_dir, train_questions or ""))
    if after == "pairs":
        found = {name: next(iter(data.relevant[name])) for name in data.queries}
        rows = [(text, data.documents[found[name]]) for name, text in data.queries.items()]
    elif after == "simcse":
        pairs = _sts_pairs(data_dir, "train")
        texts = sorted({*data.documents.values(), *pairs["text_a"], *pairs["text_b"]})
        drawn = np.random.default_rng(0).permutation(texts)[:_SIMCSE_SENTENCES].tolist()
        rows = [(text, text) for text in drawn]
    else:
        raise InputError(f"`after` should be simcse, pairs or scores. Received: {after!r}")
    return pd.DataFrame(rows, columns=["text_a", "text_b"])


@contextlib.contextmanager
def tuned(
    model_dir: str, train: pd.DataFrame, after: str, max_seq_length: int | None
) -> Iterator[str]:
    """Fine-tunes a model of kind embedding into a temporary folder; gives the run's folder."""
    dropout = 0.1 if after == "simcse" else 0.0  # which makes two texts of one
    hparams: dict[str, Any] = {
        **_TUNING,
        "num_train_epochs": 1 if after == "simcse" else 3,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    if max_seq_length is not None:
        hparams["max_seq_length"] = max_seq_length
    metrics = ["spearman"] if after == "scores" else ["mrr"]
    options: dict[str, Any] = {"kind": "embedding", "metrics": metrics, "hparams": hparams}
    with tempfile.TemporaryDirectory() as folder:
        yield fine_tune(model_dir, train, train[:200], output_dir=folder, **options).folder


def layer_scores(
    model_dir: str,
    data_dir: str,
    questions: str,
    max_seq_length: int | None = None,
    network: str = "encoder",
) -> dict[str, float]:
    """Returns the scores of `Scorer` of word vectors, "words", and of each layer, from "layer_1".

    Word vectors are those of a text's pieces, without context and special tokens. `network` is the
    objective's whose layers are meant, such as "generator".
    """
    scorer = Scorer(data_dir, questions)
    served = load_model_directory(model_dir, max_seq_length=max_seq_length)
    graph: Network = Network(served)
    encoder: Any = served.networks[0]
    if network != "encoder":
        encoder = getattr(load_objective(model_dir), network)

    def layers(texts: Sequence[str]) -> np.ndarray:
        sequences = graph.layout.single(tf.constant(texts))
        features = graph.features(sequences.ids, sequences.segment_ids)
        mask = tf.cast(features["input_mask"], tf.float32)[..., None]  # [B, S, 1]
        states = encoder(features).hidden_states
        means = [tf.reduce_sum(x * mask, 1) / tf.reduce_sum(mask, 1) for x in states]
        return tf.stack(means).numpy()  # [L, B, D]

    def of_all(texts: Sequence[str]) -> np.ndarray:
        parts = [layers(texts[i : i + _BATCH]) for i in range(0, len(texts), _BATCH)]
        return np.concatenate(parts, 1)

    words = scorer.vectors(lambda texts: word_vectors(served, texts))
    found, per_layer = {"words": scorer.scores(words)}, scorer.vectors(of_all)
    for number in range(len(per_layer[0])):
        found[f"layer_{number + 1}"] = scorer.scores([of[number] for of in per_layer])
    return {f"{name} {of}": x for name, scores in found.items() for of, x in scores.items()}

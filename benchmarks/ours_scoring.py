"""Scores of sentences by this project, as `benchmarks.ours` has the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from data.tokenizers import create_tokenizer
from data.vocabulary import Vocabulary
from pretrain.build import build_objective
from pretrain.hparams import encoder_config, resolve_hparams
from pretrain.saved_settings import special_ids
from pretrain.scoring_methods import choose
from scoring.scorer import Scorer
from serving.load import PRETRAINING, ServedModel
from signatures.network import Network
from signatures.scoring import score
from training.tracing import plain_function


def sequences(sentences: Sequence[str], vocab: str) -> list[list[int]]:
    """The ids of [CLS] sentence [SEP], or of what stands in their places."""
    tokenizer = create_tokenizer(Vocabulary.load(vocab))
    ids, splits = tokenizer.tokenize(sentences)
    parts = (ids[start:end].tolist() for start, end in itertools.pairwise(splits))
    return [[*tokenizer.frame.begin, *part, *tokenizer.frame.after_text] for part in parts]


def scores(
    size: str,
    vocab: str,
    sentences: Sequence[str],
    objective: str,
    method: str,
    precision: str = "float32",
):
    """All sentences by one method, tokenization included."""
    tf_keras.mixed_precision.set_global_policy(precision)
    hparams, words, built = _objective(size, vocab, objective)
    chosen = choose(hparams.objective.scoring_methods(), method, objective)
    model = ServedModel(
        kind=PRETRAINING,
        encoder=built.encoder,
        vocabulary=words,
        max_seq_length=built.encoder.config.max_position_embeddings,
        length_origin="",
        precision=precision,
        hparams=hparams,
        record={},
        scoring=(chosen, tuple(getattr(built, name) for name in chosen.networks)),
    )
    scorer = Scorer(score(Network(model)).trace(), method)

    def run():
        run.facts["scores"] = [one.score for one in scorer.scores(sentences)]

    run.facts = {}
    return run


def one_sequence_per_mask(size: str, vocab: str, sequences: Sequence[Sequence[int]], batch: int):
    """mlm-scoring's approach in our network: `batch` masked sequences in the order of the text.

    Each batch is padded to its longest sequence, and has logits at all positions.
    """
    _, words, built = _objective(size, vocab, "masked_lm")
    encoder, head = built.encoder, built.head
    matrix, vector = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)

    def log_probs(ids, mask, position, token):
        features = {"input_ids": ids, "input_mask": mask, "segment_ids": tf.zeros_like(ids)}
        n, S = tf.unstack(tf.shape(ids))
        everywhere = tf.tile(tf.range(S)[None], [n, 1])
        logits = head(encoder(features).sequence, everywhere)  # [n, S, V]
        logits = tf.gather(logits, position, batch_dims=1)
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(token, logits)

    traced = plain_function(log_probs, input_signature=[matrix, matrix, vector, vector])
    places = [(i, at) for i, ids in enumerate(sequences) for at in range(1, len(ids) - 1)]

    def run():
        totals = np.zeros(len(sequences))
        for start in range(0, len(places), batch):
            part = places[start : start + batch]
            ids, mask, token = masked_batch(sequences, part, words.mask_id)
            position = np.array([at for _, at in part], np.int32)
            found = traced(*map(tf.constant, (ids, mask, position, token)))
            np.add.at(totals, [i for i, _ in part], found.numpy())
        run.facts["scores"] = totals.tolist()

    run.facts = {}
    return run


def masked_batch(sequences, places, mask_id: int):
    """(ids, mask, tokens): int32 [n, S], [n, S] and [n]; S is the longest of the batch."""
    S = max(len(sequences[i]) for i, _ in places)
    ids, mask = (np.zeros([len(places), S], np.int32) for _ in range(2))
    tokens = np.array([sequences[i][at] for i, at in places], np.int32)
    for row, (i, at) in enumerate(places):
        length = len(sequences[i])
        ids[row, :length], mask[row, :length] = sequences[i], 1
        ids[row, at] = mask_id
    return ids, mask, tokens


def _objective(size, vocab, objective):
    tf_keras.utils.set_random_seed(0)
    words = Vocabulary.load(vocab)
    hparams = resolve_hparams({"model_size": size, "objective": objective}, words.size)
    return (
        hparams,
        words,
        build_objective(hparams, encoder_config(hparams, words.size), special_ids(words)),
    )

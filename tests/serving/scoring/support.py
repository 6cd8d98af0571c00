"""Sentences, and their scores as a plain transcription has them: one sentence at a time."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from scipy.special import log_softmax

from convbert.data.tokenization import Tokenizer
from tests.serving.support import WORDS

LONG = "the city was born in who ? a b c d e f g h " * 3
SENTENCES = ["the city was born", "who?", LONG, "a\u2603 b", LONG[:40]]


def pieces_of(sentence: str) -> list[int]:
    """The ids of a sentence's pieces."""
    return Tokenizer(WORDS).tokenize([sentence])[0].tolist()


def sequence(sentence: str, room: int):
    """The ids of [CLS] pieces [SEP], and the positions that count."""
    pieces = pieces_of(sentence)[:room]
    return [WORDS.cls_id, *pieces, WORDS.sep_id], range(1, 1 + len(pieces))


def hidden(encoder, ids: list[int]) -> tf.Tensor:
    """[1, S, D]."""
    ids = tf.constant([ids])
    features = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
    return encoder({**features, "segment_ids": tf.zeros_like(ids)}).sequence


def pseudo_log_likelihood(encoder, head, sentence: str, room: int) -> float:
    """Masks one position after the other."""
    total = 0.0
    ids, positions = sequence(sentence, room)
    for position in positions:
        masked = [*ids[:position], WORDS.mask_id, *ids[position + 1 :]]
        logits = head(hidden(encoder, masked), tf.constant([[position]]))[0, 0]
        total += log_softmax(np.asarray(logits, np.float64))[ids[position]]
    return total


def self_critic(encoder, head, sentence: str, room: int) -> float:
    """Equations 4 and 7 of SCRIPT."""
    total = 0.0
    table, bias = (
        np.asarray(x, np.float64) for x in (head.embeddings.word_embeddings, head.output_bias)
    )
    ids, positions = sequence(sentence, room)
    states = np.asarray(head.norm(head.transform(hidden(encoder, ids))), np.float64)[0]
    for position in positions:
        scores = table @ states[position] + bias
        replaced = 1 / (1 + np.exp(scores).sum())
        total += np.log(1 - replaced)
    return total


def causal(encoder, head, sentence: str, room: int) -> float:
    """The chain rule; the first piece follows [CLS]."""
    ids, positions = sequence(sentence, room)
    log_probs = np.asarray(head(hidden(encoder, ids)))[0]
    return sum(float(log_probs[position - 1, ids[position]]) for position in positions)


def discriminator_heuristic(encoder, head, sentence: str, room: int) -> float:
    """Minus the logits of "was replaced"."""
    ids, positions = sequence(sentence, room)
    logits = np.asarray(head(hidden(encoder, ids)))[0]
    return -sum(float(logits[position]) for position in positions)

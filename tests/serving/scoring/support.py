"""Sentences, and their scores as a plain transcription has them: one sentence at a time."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from data.tokenization import Tokenizer
from tests.serving.support import WORDS

LONG = "the city was born in who ? a b c d e f g h " * 3
SENTENCES = ["the city was born", "who?", LONG, "a\u2603 b", LONG[:40]]


def pieces_of(sentence: str) -> list[int]:
    """The ids of a sentence's pieces."""
    return Tokenizer(WORDS).tokenize([sentence])[0].tolist()


def parts_of(count: int, room: int, before: int, after: int):
    """Yields (first piece shown, one past the last, first piece that counts, one past the last)."""
    start = counted = 0
    while start + room < count:
        yield start, start + room, counted, start + room - after
        counted = start + room - after
        start = counted - before
    start = max(0, count - room)
    yield start, count, counted, count


def sequences(sentence: str, room: int, before: int, after: int):
    """Yields the ids of [CLS] part [SEP] and the positions in it that count."""
    pieces = pieces_of(sentence)
    for start, stop, first, end in parts_of(len(pieces), room, before, after):
        ids = [WORDS.cls_id, *pieces[start:stop], WORDS.sep_id]
        yield ids, range(1 + first - start, 1 + end - start)


def hidden(encoder, ids: list[int]) -> tf.Tensor:
    """[1, S, D]."""
    ids = tf.constant([ids])
    features = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
    return encoder({**features, "segment_ids": tf.zeros_like(ids)}).sequence


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """In float64."""
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max()
    return logits - np.log(np.exp(logits).sum())


def pseudo_log_likelihood(encoder, head, sentence: str, room: int) -> float:
    """Masks one position after the other."""
    total = 0.0
    for ids, positions in sequences(sentence, room, room // 4, room // 4):
        for position in positions:
            masked = [*ids[:position], WORDS.mask_id, *ids[position + 1 :]]
            logits = head(hidden(encoder, masked), tf.constant([[position]]))[0, 0]
            total += log_softmax(logits)[ids[position]]
    return total


def self_critic(encoder, head, sentence: str, room: int) -> float:
    """Equations 4 and 7 of SCRIPT."""
    total = 0.0
    table, bias = (
        np.asarray(x, np.float64) for x in (head.embeddings.word_embeddings, head.output_bias)
    )
    for ids, positions in sequences(sentence, room, room // 4, room // 4):
        states = np.asarray(head.norm(head.transform(hidden(encoder, ids))), np.float64)[0]
        for position in positions:
            scores = table @ states[position] + bias
            replaced = 1 / (1 + np.exp(scores).sum())
            total += np.log(1 - replaced)
    return total


def causal(encoder, head, sentence: str, room: int) -> float:
    """The chain rule; the first piece follows [CLS]."""
    total = 0.0
    for ids, positions in sequences(sentence, room, room // 2, 0):
        log_probs = np.asarray(head(hidden(encoder, ids)))[0]
        total += sum(float(log_probs[position - 1, ids[position]]) for position in positions)
    return total


def discriminator_heuristic(encoder, head, sentence: str, room: int) -> float:
    """Minus the logits of "was replaced"."""
    total = 0.0
    for ids, positions in sequences(sentence, room, room // 4, room // 4):
        logits = np.asarray(head(hidden(encoder, ids)))[0]
        total -= sum(float(logits[position]) for position in positions)
    return total

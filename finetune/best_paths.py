"""The best tags of whole sentences from the scores of their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from model.heads.linear_chain import ChainScores, viterbi
from training.tracing import plain_function

_BATCH = 128  # sentences


def best_paths(
    emissions: np.ndarray, counts: Sequence[int], constants: Mapping[str, np.ndarray]
) -> list[tuple[int, ...]]:
    """The Viterbi path of each sentence, in their order, whatever windows it was divided into.

    Args:
        emissions: float32 [words, L], of one sentence after the other.
        counts: the number of words of each sentence, at least 1.
        constants: `start` [L], `transitions` [L, L], `end` [L] of a `CrfHead`.
    """
    L = emissions.shape[-1]
    scores = ChainScores(*(tf.constant(constants[name]) for name in ChainScores._fields))
    specs = [tf.TensorSpec([None, None, L]), tf.TensorSpec([None], tf.int32)]
    decode = plain_function(
        lambda emissions, lengths: viterbi(emissions, lengths, scores)[0], input_signature=specs
    )
    counts = np.asarray(counts, np.int32)
    starts = np.cumsum(counts) - counts
    paths: list[tuple[int, ...]] = [()] * len(counts)
    order = np.argsort(counts, kind="stable")
    with tf.device("CPU:0"):
        for chosen in np.split(order, range(_BATCH, len(order), _BATCH)):
            lengths = counts[chosen]
            places = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
            tags = decode(emissions[starts[chosen][:, None] + places], lengths).numpy()
            for number, row, length in zip(chosen, tags, lengths):
                paths[number] = tuple(row[:length].tolist())
    return paths

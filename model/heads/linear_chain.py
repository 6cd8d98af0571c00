"""Linear-chain conditional random fields: path scores, log partition function, Viterbi decoding.

The score of the tags y of a sentence is start[y_1] + sum e_t[y_t] + sum T[y_t, y_t+1] + end[y_n]
(Lafferty et al. 2001; the same parameters as pytorch-crf). Everything is in float32, with static
shapes if the arguments have static shapes, and but for Viterbi's without host operations.

Axis letters: R rows, W words, K tags. A chain may span consecutive rows: `joined` [R] is True for
rows that continue the one before. Each row has at least one word.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
import tensorflow_text

from convbert.model.kernels import sizes

# Below the smallest sum that matters beside 1, above float32's smallest normal number.
_TINY = 1e-37


class ChainScores(NamedTuple):
    """The parameters of a chain: start [K], transitions [K, K] from row to column, end [K]."""

    start: tf.Tensor
    transitions: tf.Tensor
    end: tf.Tensor


def negative_log_likelihood(
    emissions: tf.Tensor,
    tags: tf.Tensor,
    lengths: tf.Tensor,
    scores: ChainScores,
    joined: tf.Tensor,
) -> tf.Tensor:
    """Returns -log p(tags | emissions) of chains, as a sum over their rows: float32 [R].

    Args:
        emissions: float32 [R, W, K].
        tags: int32 [R, W], arbitrary after the last word.
        lengths: int32 [R], at least 1.
        joined: bool [R].
    """
    joined &= tf.range(sizes(joined)[0]) > 0
    last = ~tf.concat([joined[1:], [False]], 0)  # of the rows of a chain
    partition = _log_partition(emissions, lengths, scores, joined, last)
    return partition - _path_scores(emissions, tags, lengths, scores, joined, last)


def _path_scores(emissions, tags, lengths, scores, joined, last_row) -> tf.Tensor:
    """Returns each row's part of its chain's score: [R]. One-hot products are deterministic."""
    _, W, K = sizes(emissions)
    words = tf.sequence_mask(lengths, W, tf.float32)[..., None]  # [R, W, 1]
    chosen = tf.one_hot(tags, K) * words  # [R, W, K]
    first, last = chosen[:, 0], tf.gather(chosen, lengths - 1, batch_dims=1)  # [R, K]
    within = tf.einsum("rwi,ij->rwj", chosen[:, :-1], scores.transitions) * chosen[:, 1:]
    before = tf.roll(last, 1, 0) @ scores.transitions
    arriving = tf.where(joined[:, None], before, scores.start)
    leaving = tf.where(last_row[:, None], scores.end, 0.0)
    inner = tf.reduce_sum(emissions * chosen, [1, 2]) + tf.reduce_sum(within, [1, 2])
    return inner + tf.reduce_sum(arriving * first + leaving * last, 1)


def _log_partition(emissions, lengths, scores, joined, last) -> tf.Tensor:
    """Returns log sum exp(score) over all paths at the last row of each chain, else 0: [R].

    Rows pass their final state to the next row of their chain. There are as many rounds as the
    longest chain has rows.
    """
    R, _, K = sizes(emissions)
    row, chain = tf.range(R), tf.cumsum(tf.cast(~joined, tf.int32)) - 1
    place = row - tf.gather(tf.math.unsorted_segment_min(row, chain, R), chain)
    step = _stepper(scores.transitions)

    def one_round(number, final, scale):
        first = tf.where(joined[:, None], step(tf.roll(final, 1, 0)), scores.start)
        return number + 1, *_recursion(first, emissions, lengths, scores)

    _, final, scale = tf.while_loop(
        lambda number, *_: number <= tf.reduce_max(place),
        one_round,
        (0, tf.zeros([R, K]), tf.zeros([R])),
        maximum_iterations=R,  # XLA requires it for a gradient
    )
    ends = tf.where(last, tf.reduce_logsumexp(final + scores.end, -1), 0.0)
    total = tf.math.unsorted_segment_sum(scale + ends, chain, R)
    return tf.where(last, tf.gather(total, chain), 0.0)


def _stepper(transitions: tf.Tensor):
    """Returns the function x [R, K] -> log(exp(x) @ exp(transitions)), for max(x) near 0."""
    largest = tf.stop_gradient(tf.reduce_max(transitions))
    weights = tf.exp(transitions - largest)  # [K, K]
    return lambda x: tf.math.log(tf.maximum(tf.exp(x) @ weights, _TINY)) + largest


def _recursion(first, emissions, lengths, scores: ChainScores):
    """Computes x_0 = first + e_0, x_t = e_t + log(exp(x_t-1) @ exp(transitions)), less maxima.

    `first` [R, K] enters the first word; x does not change after the last one. Returns the last x
    [R, K] and the sum of the maxima [R].
    """
    step = _stepper(scores.transitions)

    def word(carried, given):
        (x, scale), (t, emission) = carried, given
        new = emission + tf.where(t == 0, first, step(x))
        largest = tf.stop_gradient(tf.reduce_max(new, -1))
        new, inside = new - largest[:, None], t < lengths
        return tf.where(inside[:, None], new, x), scale + tf.where(inside, largest, 0.0)

    start = (tf.zeros_like(emissions[:, 0]), tf.zeros_like(emissions[:, 0, 0]))
    by_word = tf.range(sizes(emissions)[1]), tf.transpose(emissions, [1, 0, 2])
    return tf.foldl(word, by_word, start, parallel_iterations=1)


def viterbi(emissions: tf.Tensor, lengths: tf.Tensor, scores: ChainScores) -> tf.RaggedTensor:
    """Returns the best paths of undivided chains: int32 [R, (words)].

    Shape: emissions float32 [R, W, K], W at least 1; lengths int32 [R].
    """
    # The first and the last state are the library's own, of the last row and column.
    starts, ends = scores.start[None], tf.pad(scores.end, [[0, 1]])[:, None]
    paths = tensorflow_text.viterbi_constrained_sequence(
        tf.nn.log_softmax(emissions),  # near 0, where float32 is more precise
        tf.cast(lengths, tf.int64),
        transition_weights=tf.concat([tf.concat([scores.transitions, starts], 0), ends], 1),
        use_log_space=True,
    )
    return paths.with_values(tf.ensure_shape(paths.values, [None]))

"""Linear-chain conditional random fields: scores of tag sequences, their sum, the best of them.

The score of the tags y of a sentence is start[y_1] + sum e_t[y_t] + sum T[y_t, y_t+1] + end[y_n]
(Lafferty et al. 2001; the same parameters as pytorch-crf's). All is in float32, with static shapes
where those of the arguments are, and without operations of a host.

Axis letters: R rows, W words, K tags. A chain may be divided over consecutive rows: `joined` [R]
says which rows continue the one before. Each row has at least one word.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

# Below the smallest sum that matters beside 1, above the smallest normal number of float32.
_TINY = 1e-37
# The score of what is forbidden; exp gives 0.
FORBIDDEN = -10_000.0


class ChainScores(NamedTuple):
    """The parameters of a chain: start [K], transitions [K, K] from row to column, end [K]."""

    start: tf.Tensor
    transitions: tf.Tensor
    end: tf.Tensor


class _Links(NamedTuple):
    """How rows make chains; all [R] but `rounds`."""

    joined: tf.Tensor  # bool: continues the row before
    last: tf.Tensor  # bool: no row continues it
    chain: tf.Tensor  # int32: the number of its chain
    rounds: tf.Tensor  # int32 []: the number of rows of the longest chain


def _links(joined: tf.Tensor) -> _Links:
    R = tf.shape(joined)[0]
    row = tf.range(R)
    joined &= row > 0
    chain = tf.cumsum(tf.cast(~joined, tf.int32)) - 1
    first = tf.math.unsorted_segment_min(row, chain, R)
    rounds = 1 + tf.reduce_max(row - tf.gather(first, chain))
    last = ~tf.concat([joined[1:], tf.zeros([1], tf.bool)], 0)
    return _Links(joined, last, chain, rounds)


def negative_log_likelihood(
    emissions: tf.Tensor,
    tags: tf.Tensor,
    lengths: tf.Tensor,
    scores: ChainScores,
    joined: tf.Tensor,
) -> tf.Tensor:
    """-log p(tags | emissions) of chains, as a sum over their rows: float32 [R].

    The gradient of the partition function is written out: marginal probabilities, from one loop
    over words that goes forward and backward at once.

    Args:
        emissions: float32 [R, W, K].
        tags: int32 [R, W], any after the last word.
        lengths: int32 [R], at least 1.
        scores: of the chain.
        joined: bool [R].
    """
    links = _links(joined)
    partition = _log_partition(emissions, lengths, scores, links)
    return partition - _path_scores(emissions, tags, lengths, scores, links)


def _path_scores(emissions, tags, lengths, scores: ChainScores, links: _Links) -> tf.Tensor:
    """Every row's part of its chain's score: [R]. Products with 0 and 1 are deterministic."""
    W, K = tf.shape(emissions)[1], emissions.shape[-1]
    words = tf.sequence_mask(lengths, W, tf.float32)[..., None]  # [R, W, 1]
    chosen = tf.one_hot(tags, K) * words  # [R, W, K]
    first, last = chosen[:, 0], _at(chosen, lengths - 1)  # [R, K]
    within = tf.einsum("rwi,ij->rwj", chosen[:, :-1], scores.transitions) * chosen[:, 1:]
    arriving = tf.where(
        links.joined[:, None], tf.roll(last, 1, 0) @ scores.transitions, scores.start
    )
    leaving = tf.where(links.last[:, None], scores.end, 0.0)
    inner = tf.reduce_sum(emissions * chosen, [1, 2]) + tf.reduce_sum(within, [1, 2])
    return inner + tf.reduce_sum(arriving * first + leaving * last, 1)


def _log_partition(
    emissions: tf.Tensor, lengths: tf.Tensor, scores: ChainScores, links: _Links
) -> tf.Tensor:
    """log of the sum of exp(score) over all paths, at the last row of each chain, else 0: [R]."""

    @tf.custom_gradient
    def partition(emissions, start, transitions, end):
        chain = ChainScores(start, transitions, end)
        states, final, scale = _forward_backward(emissions, lengths, chain, links)
        R = tf.shape(lengths)[0]
        ends = tf.reduce_logsumexp(final[0] + end, -1)  # [R]
        total = tf.math.unsorted_segment_sum(
            scale[0, :, 0] + tf.where(links.last, ends, 0.0), links.chain, R
        )
        value = tf.where(links.last, tf.gather(total, links.chain), 0.0)

        def gradient(upstream):
            upstream = tf.where(links.last, upstream, 0.0)
            of_chains = tf.math.unsorted_segment_sum(upstream, links.chain, R)
            weight = tf.gather(of_chains, links.chain)[:, None]  # [R, 1]
            return _expectations(emissions, lengths, chain, links, (states, final), weight)

        return value, gradient

    return partition(emissions, *scores)


def _forward_backward(emissions, lengths, scores: ChainScores, links: _Links):
    """Scores of beginnings and of ends of paths, both with the word's own emission.

    Rows of a chain pass what arrives at their ends to their neighbours: there are as many rounds as
    the longest chain has rows, 1 where none is divided.

    Returns:
        states [W, 2, R, K]: forward, and backward in the order from the last word to the first,
        less a constant for each word so that the largest is 0; those of the last step, [2, R, K];
        and the sum of the constants, [2, R, 1].
    """
    both = tf.stack([emissions, _reversed(emissions, lengths)])  # [2, R, W, K]
    both = tf.transpose(both, [2, 0, 1, 3])
    matrices = tf.stack([scores.transitions, tf.transpose(scores.transitions)])
    outer = tf.stack([scores.start, scores.end])[:, None]  # [2, 1, K]
    inside = tf.stack([links.joined, ~links.last])[..., None]  # [2, R, 1]

    def one_round(number, states, final, scale):
        del states, scale
        neighbours = tf.stack([tf.roll(final[0], 1, 0), tf.roll(final[1], -1, 0)])
        first = tf.where(inside, _stepper(matrices)(neighbours), outer)
        return number + 1, *_recursion(first, both, lengths, matrices)

    shape = tf.shape(both)
    start = (tf.zeros([], tf.int32), tf.zeros_like(both), tf.zeros(shape[1:]))
    found = tf.while_loop(
        lambda number, *_: number < links.rounds,
        one_round,
        (*start, tf.zeros([2, shape[2], 1])),
        shape_invariants=(
            tf.TensorShape([]),
            both.shape,
            both.shape[1:],
            tf.TensorShape([2, both.shape[2], 1]),
        ),
    )
    return found[1:]


def _stepper(matrices: tf.Tensor):
    """x [N, R, K] -> log(exp(x) @ exp(matrices)), for x of which the largest is about 0."""
    largest = tf.reduce_max(matrices, [1, 2], keepdims=True)
    weights = tf.exp(matrices - largest)  # [N, K, K]
    return lambda x: tf.math.log(tf.maximum(tf.exp(x) @ weights, _TINY)) + largest


def _recursion(first, emissions, lengths, matrices):
    """x_0 = first + e_0, x_t = e_t + log(exp(x_t-1) @ exp(matrices)), without their maxima.

    Args:
        first: [N, R, K], what arrives at the first word.
        emissions: [W, N, R, K].
        lengths: int32 [R]; x stays what it is after the last word.
        matrices: [N, K, K].

    Returns:
        x of every word [W, N, R, K], the last x [N, R, K], the sum of the maxima [N, R, 1].
    """
    W, step = _size(emissions, 0), _stepper(matrices)

    def normalized(x):
        largest = tf.reduce_max(x, -1, keepdims=True)
        return x - largest, largest

    def body(t, x, scale, found):
        inside = (t < lengths)[:, None]
        new, largest = normalized(step(x) + emissions[t])
        x = tf.where(inside, new, x)
        return t + 1, x, scale + tf.where(inside, largest, 0.0), found.write(t, x)

    x, scale = normalized(first + emissions[0])
    found = tf.TensorArray(tf.float32, W, element_shape=x.shape).write(0, x)
    _, x, scale, found = tf.while_loop(
        lambda t, *_: t < W,
        body,
        (1, x, scale, found),
        parallel_iterations=1,
        maximum_iterations=W - 1,  # which XLA needs to know for a gradient, as benchmarks take
    )
    return tf.ensure_shape(found.stack(), emissions.shape), x, scale


def _expectations(emissions, lengths, scores, links, found, weight):
    """How often each tag, transition, start and end is expected, times `weight` [R, 1]."""
    states, final = found
    W = tf.shape(emissions)[1]
    words = tf.sequence_mask(lengths, W, tf.float32)  # [R, W]
    forward = tf.transpose(states[:, 0], [1, 0, 2])  # [R, W, K]
    backward = _reversed(tf.transpose(states[:, 1], [1, 0, 2]), lengths)
    tags = tf.nn.softmax(forward + backward - emissions) * (words * weight)[..., None]

    transitions = tf.exp(scores.transitions - tf.reduce_max(scores.transitions))

    def pairs(before, after, weight):
        """Logarithms [R, n, K] of neighbouring words, `weight` [R, n] -> [K, K]."""
        before, after = tf.exp(before), tf.exp(after)
        total = tf.reduce_sum((before @ transitions) * after, -1, keepdims=True)
        before *= weight[..., None] / tf.maximum(total, _TINY)
        return transitions * tf.einsum("rni,rnj->ij", before, after)

    within = pairs(forward[:, :-1], backward[:, 1:], words[:, 1:] * weight)
    between = pairs(
        tf.roll(final[0], 1, 0)[:, None],
        final[1][:, None],
        tf.where(links.joined[:, None], weight, 0.0),
    )
    starts = tf.where(links.joined[:, None], 0.0, tags[:, 0])
    ends = tf.where(links.last[:, None], weight * tf.nn.softmax(final[0] + scores.end), 0.0)
    return tags, tf.reduce_sum(starts, 0), within + between, tf.reduce_sum(ends, 0)


def log_partition(emissions: tf.Tensor, lengths: tf.Tensor, scores: ChainScores) -> tf.Tensor:
    """log of the sum of exp(score) over all paths of undivided chains, without a gradient: [R].

    Shape: emissions float32 [R, W, K], lengths int32 [R].
    """
    first = tf.broadcast_to(scores.start, tf.shape(emissions[:, 0]))[None]
    by_word = tf.transpose(emissions, [1, 0, 2])[:, None]  # [W, 1, R, K]
    _, final, scale = _recursion(first, by_word, lengths, scores.transitions[None])
    return scale[0, :, 0] + tf.reduce_logsumexp(final[0] + scores.end, -1)


def viterbi(
    emissions: tf.Tensor, lengths: tf.Tensor, scores: ChainScores
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best path of undivided chains and its log-probability.

    Args:
        emissions: float32 [R, W, K], W at least 1.
        lengths: int32 [R].
        scores: of the chain.

    Returns:
        tags int32 [R, W], 0 after the last word; log p float32 [R].
    """
    # Of the same probabilities, but with scores near 0, which float32 holds more exactly.
    emissions = tf.nn.log_softmax(emissions)
    W, K = _size(emissions, 1), emissions.shape[-1]

    def body(t, x, found):
        candidates = x[:, :, None] + scores.transitions  # [R, K from, K to]
        inside = (t < lengths)[:, None]
        best = tf.reduce_max(candidates, 1) + emissions[:, t]
        came_from = tf.argmax(candidates, 1, tf.int32)
        came_from = tf.where(inside, came_from, tf.range(K))
        return t + 1, tf.where(inside, best, x), found.write(t, came_from)

    x = scores.start + emissions[:, 0]
    # The first word came from nowhere; that it has an entry keeps sentences of one word simple.
    found = tf.TensorArray(tf.int32, W, element_shape=x.shape).write(0, tf.zeros_like(x, tf.int32))
    _, x, found = tf.while_loop(lambda t, *_: t < W, body, (1, x, found), parallel_iterations=1)
    x += scores.end
    last = tf.argmax(x, -1, tf.int32)  # [R]
    pointers = found.stack()  # [W, R, K]

    def back(t, tag, path):
        tag = tf.gather(pointers[t], tag, batch_dims=1)
        return t - 1, tag, path.write(t - 1, tag)

    path = tf.TensorArray(tf.int32, W, element_shape=last.shape).write(W - 1, last)
    *_, path = tf.while_loop(lambda t, *_: t > 0, back, (W - 1, last, path), parallel_iterations=1)
    tags = tf.transpose(path.stack()) * tf.sequence_mask(lengths, W, tf.int32)
    return tags, tf.reduce_max(x, -1) - log_partition(emissions, lengths, scores)


def _size(values: tf.Tensor, axis: int) -> int | tf.Tensor:
    """The length of an axis, static where it is known."""
    size = values.shape[axis]
    return tf.shape(values)[axis] if size is None else size


def _at(values: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """[R, W, K], int32 [R] -> [R, K]."""
    return tf.gather(values, index, batch_dims=1)


def _reversed(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """[R, W, K] with the words of each row in the opposite order; what follows them is any."""
    places = tf.maximum(lengths[:, None] - 1 - tf.range(tf.shape(values)[1]), 0)
    return tf.gather(values, places, batch_dims=1)

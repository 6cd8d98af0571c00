"""Log-sum-exp and softmax over the vocabulary, computed in blocks of positions.

The scores of all positions, [B, S, V], would by far be the largest tensor of a training step:
477 MiB for 32 x 128 positions and BERT's vocabulary, and as much again for the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from convbert.model.kernels.fusion import custom_gradient, fused, sizes
from convbert.model.kernels.projection import vocabulary_logits, vocabulary_logits_reference

# Scores in a block: 64 MiB of float32, 512 positions with BERT's vocabulary.
LARGEST_BLOCK = 2**24


def vocabulary_log_sum_exp(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Computes log(sum over v of exp(states . table[v] + bias[v])).

    Args:
        states: [B, S, E], in the dtype of `table`.
        table: word embeddings [V, E].
        bias: float32 [V].

    Returns:
        float32 [B, S]. Training takes `log_sum_exp_cross_entropy`.
    """
    return _log_sum_exps(states, table, bias)[0]


def vocabulary_log_sum_exp_reference(states, table, bias):
    """Readable form of `vocabulary_log_sum_exp`."""
    return tf.reduce_logsumexp(vocabulary_logits_reference(states, table, bias), -1)


def log_sum_exp_cross_entropy(
    states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Binary cross entropy with `vocabulary_log_sum_exp` as the logit, for training.

    The gradient is computed along with it, block by block, with three products with the table in
    total.

    Args:
        states, table, bias: see `vocabulary_log_sum_exp`.
        labels: float32 [B, S], 0 or 1.
        weights: float32 [B, S].

    Returns:
        The sum of weight * cross entropy, and the logits, float32 [B, S], without a gradient.
    """

    @custom_gradient
    def cross_entropy(states, table, bias):
        logits, *found = _log_sum_exps(states, table, bias, labels, weights)

        def gradient(upstream, _):
            return [tf.cast(upstream, value.dtype) * value for value in found]

        entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        return (tf.reduce_sum(weights * entropy), logits), gradient

    loss, logits = cross_entropy(states, table, bias)
    return loss, tf.stop_gradient(logits)


def log_sum_exp_cross_entropy_reference(states, table, bias, labels, weights):
    """Readable form of `log_sum_exp_cross_entropy`."""
    logits = vocabulary_log_sum_exp_reference(states, table, bias)
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(weights * entropy), tf.stop_gradient(logits)


def vocabulary_cross_entropy(
    states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, ids: tf.Tensor, used: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes -log softmax(states . table[v] + bias[v])[ids] at the used positions.

    Unused positions cost nothing. The gradient recomputes the scores.

    Args:
        states: [P, E]; table, bias: see `vocabulary_log_sum_exp`.
        ids: int32 [P] in [0, V); arbitrary where not used.
        used: bool [P].

    Returns:
        float32 [P], 0 where not used; and bool [P], True if the id has the highest score.
    """
    ids = tf.where(used, ids, 0)

    def losses(states, ids):
        scores = vocabulary_logits(states, table, bias)  # [n, V]
        right = tf.argmax(scores, -1, output_type=tf.int32) == ids
        return [_softmax(scores)[0] - tf.gather(scores, ids, batch_dims=1), right], []

    def gradients(states, ids, upstream):
        _, exponentials, total = _softmax(vocabulary_logits(states, table, bias))
        to_scores = _to_scores(exponentials, upstream / total, ids, upstream)  # [n, V]
        to_bias = tf.reduce_sum(to_scores, 0)
        to_scores = tf.cast(to_scores, table.dtype)
        to_table = tf.matmul(to_scores, states, transpose_a=True)
        return [tf.matmul(to_scores, table)], [to_table, to_bias]

    @custom_gradient
    def cross_entropy(states, table, bias):
        def gradient(upstream, _):
            given, values = [states, ids, tf.where(used, upstream, 0.0)], [tf.zeros_like(states)]
            return _in_blocks(gradients, table, given, values, used, gradients=True)

        values = [tf.zeros_like(ids, tf.float32), tf.zeros_like(used)]
        nll, right = _in_blocks(losses, table, [states, ids], values, used)
        return (tf.where(used, nll, 0.0), used & right), gradient

    return cross_entropy(states, table, bias)


def vocabulary_cross_entropy_reference(states, table, bias, ids, used):
    """Readable form of `vocabulary_cross_entropy`; `ids` in [0, V) everywhere."""
    scores = vocabulary_logits_reference(states[None], table, bias)[0]
    nll = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, scores)
    return tf.where(used, nll, 0.0), used & (tf.argmax(scores, -1, tf.int32) == ids)


def _log_sum_exps(states, table, bias, *given):
    """Returns log-sum-exp [B, S]; given labels and weights [B, S], also the gradients of states,
    table and bias by the sum of `log_sum_exp_cross_entropy`."""

    def block(states, *given):
        found, exponentials, total = _softmax(vocabulary_logits(states, table, bias))
        if not given:
            return [found], []
        labels, weights = given
        slope = weights * (tf.sigmoid(found) - labels)
        # Multiplies the [n, E] around the softmax, not its [n, V].
        weights = (slope / total)[:, None]  # [n, 1]
        to_bias = tf.squeeze(tf.matmul(weights, exponentials, transpose_a=True), 0)
        weights, exponentials = (tf.cast(value, table.dtype) for value in (weights, exponentials))
        to_states = weights * tf.matmul(exponentials, table)
        to_table = tf.matmul(exponentials, weights * states, transpose_a=True)
        return [found, to_states], [to_table, to_bias]

    B, S, E = sizes(states)
    rows = [tf.reshape(value, [B * S, *value.shape[2:]]) for value in (states, *given)]
    values = [tf.zeros([B * S]), *([tf.zeros_like(rows[0])] if given else [])]
    found, *gradients = _in_blocks(block, table, rows, values, gradients=bool(given))
    if gradients:
        gradients[0] = tf.reshape(gradients[0], [B, S, E])
    return tf.reshape(found, [B, S]), *gradients


def _in_blocks(block, table, given: Sequence, values: Sequence, used=None, *, gradients=False):
    """Applies `block` to n positions at a time.

    Args:
        block: maps n positions of each tensor in `given` to two lists: the values of each
            position [n, ...], and the gradients of table and bias, or nothing.
        table: [V, E].
        given: tensors [P, ...].
        values: zeros [P, ...] for the values of each position; skipped blocks stay zero.
        used: bool [P], the positions to compute. Default: all.
        gradients: whether the block returns gradients of table and bias.

    Returns:
        The values [P, ...], and the gradients' sums.
    """
    P, (V, E) = sizes(given[0])[0], table.shape
    count, n = _division(P, V)
    needed = count
    if used is not None:
        order = tf.argsort(tf.cast(~used, tf.int32), stable=True)  # used positions come first
        given = [tf.gather(value, order) for value in given]
        needed = (tf.reduce_sum(tf.cast(used, tf.int32)) + n - 1) // n

    def blocks(value):  # [P, ...] -> [count, n, ...]
        padded = tf.pad(value, [[0, count * n - P], *([0, 0] for _ in value.shape[1:])])
        return tf.reshape(padded, [count, n, *value.shape[1:]])

    def whole(array):
        stacked = array.stack()
        value = tf.reshape(stacked, [count * n, *stacked.shape[2:]])[:P]
        return value if used is None else tf.gather(value, tf.math.invert_permutation(order))

    def step(number, arrays, totals):
        found, more = block(*(part[number] for part in parts))
        arrays = [array.write(number, value) for array, value in zip(arrays, found)]
        more = [tf.cast(value, tf.float32) for value in more]
        return number + 1, arrays, [total + value for total, value in zip(totals, more)]

    parts = [blocks(value) for value in given]
    arrays = [tf.TensorArray(v.dtype, count).unstack(blocks(v)) for v in values]
    totals = [tf.zeros([V, E]), tf.zeros([V])] if gradients else []
    _, arrays, totals = tf.while_loop(
        lambda number, *_: number < needed, step, (0, arrays, totals), parallel_iterations=1
    )
    totals = [tf.cast(total, dtype) for total, dtype in zip(totals, (table.dtype, tf.float32))]
    return *map(whole, arrays), *totals


def _division(positions, V):
    """Returns the number of blocks and positions per block: tensors if B or S is dynamic."""
    largest = max(1, LARGEST_BLOCK // V)
    # An empty batch has blocks, too.
    positions = tf.maximum(positions, 1) if tf.is_tensor(positions) else max(positions, 1)
    count = (positions + largest - 1) // largest
    return count, (positions + count - 1) // count


def _softmax(scores):
    """Maps scores [n, V] to log-sum-exp [n], exp(scores - maximum) [n, V] and their sum [n]."""
    largest = tf.reduce_max(scores, -1)
    exponentials = exponentials_of(scores, largest[:, None])
    total = tf.reduce_sum(exponentials, -1)
    return tf.math.log(total) + largest, exponentials, total


@fused
def exponentials_of(scores, largest):
    return tf.exp(scores - largest)


@fused
def _to_scores(exponentials, weights, ids, upstream):
    """Computes weights * exponentials, minus the upstream gradient [n] at the ids [n]."""
    chosen = tf.range(exponentials.shape[-1]) == ids[:, None]
    return exponentials * weights[:, None] - tf.where(chosen, upstream[:, None], 0.0)

"""Log-sum-exp over the vocabulary at every position, in blocks of positions.

The scores of all positions, [B, S, V], would be the largest tensor of a training step by far:
477 MiB for 32 x 128 positions of BERT's vocabulary, and its gradient as much again.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from model.kernels.fusion import fused, sizes
from model.kernels.projection import vocabulary_logits, vocabulary_logits_reference

# Scores of a block: 64 MiB in float32, of 512 positions of BERT's vocabulary.
LARGEST_BLOCK = 2**24


def vocabulary_log_sum_exp(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """log(sum over v of exp(states . table[v] + bias[v])).

    Args:
        states: [B, S, E], of the dtype of `table`.
        table: word embeddings [V, E].
        bias: float32 [V].

    Returns:
        float32 [B, S].
    """

    @tf.custom_gradient
    def log_sum_exp(states, table, bias):
        def gradient(upstream):
            return _in_blocks(states, table, bias, lambda _, slope: slope, upstream)[1:]

        return _in_blocks(states, table, bias), gradient

    return log_sum_exp(states, table, bias)


def vocabulary_log_sum_exp_reference(
    states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor
) -> tf.Tensor:
    """`vocabulary_log_sum_exp`, readable."""
    return tf.reduce_logsumexp(vocabulary_logits_reference(states, table, bias), -1)


def log_sum_exp_cross_entropy(
    states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Binary cross entropy of which `vocabulary_log_sum_exp` is the logit, for training.

    Its gradient is computed with it, block by block, by three products with the table in all. From
    `vocabulary_log_sum_exp` it would take four, as scores are not kept.

    Args:
        states, table, bias: as of `vocabulary_log_sum_exp`.
        labels: float32 [B, S], 0 or 1.
        weights: float32 [B, S].

    Returns:
        The sum of weight * cross entropy; the logits, float32 [B, S], without a gradient.
    """

    @tf.custom_gradient
    def cross_entropy(states, table, bias):
        def slope(logits, labels, weights):
            return weights * (tf.sigmoid(logits) - labels)

        logits, *found = _in_blocks(states, table, bias, slope, labels, weights)

        def gradient(upstream, _):
            return [tf.cast(upstream, value.dtype) * value for value in found]

        entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        return (tf.reduce_sum(weights * entropy), logits), gradient

    loss, logits = cross_entropy(states, table, bias)
    return loss, tf.stop_gradient(logits)


def log_sum_exp_cross_entropy_reference(
    states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`log_sum_exp_cross_entropy`, readable."""
    logits = vocabulary_log_sum_exp_reference(states, table, bias)
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(weights * entropy), tf.stop_gradient(logits)


def _in_blocks(states, table, bias, slope: Callable | None = None, *given):
    """Log-sum-exp [B, S]; with a slope, then the gradients of states, table and bias.

    `slope` is the loss's derivative by a block's log-sum-exps [n], from these and the block's part
    of each of `given` [B, S].
    """
    (B, S, E), V = sizes(states), table.shape[0]
    count, n = _division(B * S, V)

    def blocks(value):  # [B, S, ...] -> [count, n, ...]
        flat = tf.reshape(value, [B * S, *value.shape[2:]])
        paddings = [[0, count * n - B * S], *([0, 0] for _ in flat.shape[1:])]
        return tf.reshape(tf.pad(flat, paddings), [count, n, *flat.shape[1:]])

    def whole(array):
        stacked = array.stack()
        flat = tf.reshape(stacked, [count * n, *stacked.shape[2:]])[: B * S]
        return tf.reshape(flat, [B, S, *stacked.shape[2:]])

    def step(number, arrays, totals):
        part = (value[number] for value in parts)
        outputs, more = _block(table, bias, slope, *part)
        arrays = [array.write(number, value) for array, value in zip(arrays, outputs)]
        return number + 1, arrays, [total + value for total, value in zip(totals, more)]

    parts = [blocks(value) for value in (states, *given)]
    arrays = [tf.TensorArray(tf.float32, count, element_shape=parts[0].shape[1:2])]
    totals = []
    if slope is not None:
        arrays.append(tf.TensorArray(states.dtype, count, element_shape=parts[0].shape[1:]))
        totals = [tf.zeros([V, E]), tf.zeros([V])]
    _, arrays, totals = tf.while_loop(
        lambda number, *_: number < count, step, (0, arrays, totals), parallel_iterations=1
    )
    if slope is None:
        return whole(arrays[0])
    to_table, to_bias = totals
    return *map(whole, arrays), tf.cast(to_table, table.dtype), to_bias


def _division(positions, V):
    """The number of blocks and the positions in each: scalar tensors if B or S is dynamic."""
    largest = max(1, LARGEST_BLOCK // V)
    count = (positions + largest - 1) // largest
    count = tf.maximum(count, 1) if tf.is_tensor(count) else max(count, 1)
    return count, (positions + count - 1) // count


def _block(table, bias, slope, states, *given):
    """Of states [n, E]: what has an entry per position, and what is summed over positions."""
    scores = vocabulary_logits(states, table, bias)  # [n, V]
    largest = tf.reduce_max(scores, -1)
    exponentials = _exponentials(scores, largest[:, None])
    total = tf.reduce_sum(exponentials, -1)
    found = tf.math.log(total) + largest  # [n]
    if slope is None:
        return [found], []
    # Not the [n, V] of the softmax but the [n, E] around it are multiplied.
    weights = (slope(found, *given) / total)[:, None]  # [n, 1]
    to_bias = tf.squeeze(tf.matmul(weights, exponentials, transpose_a=True), 0)
    weights, exponentials = (tf.cast(value, table.dtype) for value in (weights, exponentials))
    to_states = weights * tf.matmul(exponentials, table)
    to_table = tf.matmul(exponentials, weights * states, transpose_a=True)
    return [found, to_states], [tf.cast(to_table, tf.float32), to_bias]


@fused
def _exponentials(scores, largest):
    return tf.exp(scores - largest)

"""Cross entropy over a vocabulary at every token, without the logits of all tokens at once."""

from __future__ import annotations

import tensorflow as tf

from model.kernels import vocabulary_logits

LOGITS_PER_BLOCK = 2**24  # 64 MiB


def blocked_cross_entropy(
    inputs: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, ids: tf.Tensor, used: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """-log softmax(inputs · tableᵀ + bias)[ids] of the tokens that are used.

    Used tokens are computed in blocks of the same number of tokens, one after the other, so that
    the others cost nothing and at most `LOGITS_PER_BLOCK` logits exist. The gradient computes the
    logits again.

    Args:
        inputs: [T, E], of the dtype of `table`.
        table: [V, E].
        bias: float32 [V].
        ids: int32 [T] in [0, V); those of tokens that are not used may be any.
        used: bool [T].

    Returns:
        float32 [T], 0 for tokens that are not used; and bool [T], whether the id is the most
        probable one.
    """
    block = max(1, LOGITS_PER_BLOCK // table.shape[0])
    if inputs.shape[0] is not None:
        block = min(block, inputs.shape[0])
    order, count = _used_first(used, block)

    def rows(number):
        """The places in T of a block, int32 [block], and which of them are of used tokens."""
        start = number * block
        return tf.slice(order, [start], [block]), start + tf.range(block) < count

    @tf.custom_gradient
    def cross_entropy(inputs, table, bias):
        def add_block(number, nll, right):
            places, valid = rows(number)
            logits = vocabulary_logits(tf.gather(inputs, places)[None], table, bias)[0]
            wanted = tf.where(valid, tf.gather(ids, places), 0)
            chosen = tf.gather(logits, wanted, batch_dims=1)
            values = tf.where(valid, tf.reduce_logsumexp(logits, -1) - chosen, 0.0)
            best = valid & (tf.argmax(logits, -1, output_type=tf.int32) == wanted)
            places = places[:, None]
            nll = tf.tensor_scatter_nd_add(nll, places, values)
            return number + 1, nll, tf.tensor_scatter_nd_add(right, places, tf.cast(best, tf.int32))

        def gradient(upstream, _):
            return _gradient(inputs, table, bias, ids, upstream, rows, -(-count // block))

        T = tf.shape(inputs)[0]
        _, nll, right = tf.while_loop(
            lambda number, *_: number * block < count,
            add_block,
            (0, tf.zeros([T]), tf.zeros([T], tf.int32)),
            parallel_iterations=1,
        )
        return (nll, right > 0), gradient

    return cross_entropy(inputs, table, bias)


def _used_first(used, block):
    """Places of the tokens, the used ones first, int32 [n], n a multiple of `block`; their number.

    Places beyond the tokens are 0.
    """
    order = tf.argsort(tf.cast(~used, tf.int32), stable=True)
    missing = -tf.size(order) % block if used.shape[0] is None else -used.shape[0] % block
    return tf.pad(order, [[0, missing]]), tf.reduce_sum(tf.cast(used, tf.int32))


def _gradient(inputs, table, bias, ids, upstream, rows, blocks):
    """The gradients of inputs, table and bias."""

    def add_block(number, to_inputs, to_table, to_bias):
        places, valid = rows(number)
        given = tf.gather(inputs, places)
        softmax = tf.nn.softmax(vocabulary_logits(given[None], table, bias)[0])
        share = tf.where(valid, tf.gather(upstream, places), 0.0)[:, None]
        wanted = tf.one_hot(tf.where(valid, tf.gather(ids, places), 0), table.shape[0])
        to_logits = (softmax - wanted) * share  # [block, V]
        to_bias += tf.reduce_sum(to_logits, 0)
        to_logits = tf.cast(to_logits, table.dtype)
        to_given = tf.matmul(to_logits, table)
        to_inputs = tf.tensor_scatter_nd_add(to_inputs, places[:, None], to_given)
        product = tf.matmul(to_logits, given, transpose_a=True)
        return number + 1, to_inputs, to_table + tf.cast(product, tf.float32), to_bias

    start = (0, tf.zeros_like(inputs), tf.zeros(table.shape), tf.zeros_like(bias))
    _, to_inputs, to_table, to_bias = tf.while_loop(
        lambda number, *_: number < blocks, add_block, start, parallel_iterations=1
    )
    return to_inputs, tf.cast(to_table, table.dtype), to_bias

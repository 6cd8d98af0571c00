"""Attention: its two matrix products and the operations around them."""

from __future__ import annotations

import tensorflow as tf

from convbert.common.backend import built_for_litert
from convbert.model.kernels.fusion import (
    custom_gradient,
    fused,
    is_fused,
    last_axis_mean,
    running_on_cpu_only,
    sizes,
)
from convbert.model.kernels.stateless_dropout import drop, dropout_reference, dropping

# Added to the scores of what a token does not attend to; the original's value, finite in bfloat16.
PADDING_SCORE = -10000.0


def attend(
    q: tf.Tensor,
    k: tf.Tensor,
    v: tf.Tensor,
    num_heads: int,
    bias: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes softmax(Q Kᵀ / √H + bias) V for N heads.

    Args:
        q, k, v: [B, S, A].
        num_heads: N, a divisor of A.
        bias, rate, seed: see `attention_probabilities`. LiteRT's form has no dropout.

    Returns:
        The context [B, S, A] and the attention probabilities [B, N, S, S].
    """
    scale = (q.shape[-1] // num_heads) ** -0.5
    if built_for_litert():  # LiteRT folds a factor of the keys into their projection
        return _head_by_head(q, k * scale, v, num_heads, bias)
    q, k, v = (split_heads(x, num_heads) for x in (q * scale, k, v))  # [B, N, S, H]
    scores = tf.matmul(q, k, transpose_b=True)  # [B, N, S, S]
    probabilities = attention_probabilities(scores, bias, rate, seed)
    return join_heads(tf.matmul(probabilities, v)), probabilities


def attend_reference(q, k, v, num_heads, bias, rate, seed):
    """Readable form of `attend`."""
    q, k, v = (split_heads_reference(x, num_heads) for x in (q, k, v))
    scores = tf.einsum("bnih,bnjh->bnij", q, k) / q.shape[-1] ** 0.5
    probabilities = attention_probabilities_reference(scores, bias, rate, seed)
    context = tf.einsum("bnij,bnjh->bnih", probabilities, v)
    return join_heads_reference(context), probabilities


def attend_nearby(
    q: tf.Tensor,
    k: tf.Tensor,
    v: tf.Tensor,
    num_heads: int,
    bias: tf.Tensor,
    radius: int,
    width: int,
    rate: float,
    seed: tf.Tensor | None,
    training: bool,
) -> tf.Tensor:
    """Computes the context of `attend` where token i attends to i - radius ... i + radius.

    From four blocks of `width` >= radius tokens on, it is computed block by block: the queries of
    one see the keys of three, which takes O(S) scores instead of O(S^2). Dropout then draws other
    elements. In training with lengths known only at run time, all scores are computed.
    """
    S = sizes(q)[1]

    def at_once():
        near = bias + window_bias(S, radius, q.dtype)
        return attend(q, k, v, num_heads, near, rate, seed)[0]

    def in_blocks():
        return _attend_in_blocks(q, k, v, num_heads, bias, radius, width, rate, seed)

    if isinstance(S, int):
        return in_blocks() if 4 * width <= S else at_once()
    if training:  # `tf.cond` has no gradient of what `fused` compiles
        return at_once()
    return tf.cond(4 * width <= S, in_blocks, at_once)


def attend_nearby_reference(q, k, v, num_heads, bias, radius, width, rate, seed, training):
    """Readable form of `attend_nearby`."""
    near = bias + window_bias(sizes(q)[1], radius, q.dtype)
    return attend_reference(q, k, v, num_heads, near, rate, seed)[0]


def window_bias(S: int | tf.Tensor, radius: int, dtype: tf.DType) -> tf.Tensor:
    """Returns the bias [S, S] that hides tokens more than `radius` away."""
    position = tf.range(S)
    far = tf.abs(position[:, None] - position) > radius
    return tf.cast(far, dtype) * PADDING_SCORE


def _attend_in_blocks(q, k, v, num_heads, bias, radius, width, rate, seed):
    B, S, A = sizes(q)
    count, H = -(-S // width), A // num_heads

    def cut(x, more):  # [B, S, A] -> [B, N, T + 2 more, c, H]: T blocks of c tokens, and more
        before, after = more * width, (count + more) * width - S
        x = tf.pad(split_heads(x, num_heads), [[0, 0], [0, 0], [before, after], [0, 0]])
        return tf.reshape(x, [B, num_heads, count + 2 * more, width, H])

    q = cut(q * H**-0.5, 0)
    k, v = (_with_neighbors(cut(x, 1)) for x in (k, v))
    scores = tf.matmul(q, k, transpose_b=True)  # [B, N, T, c, 3c]
    near = _bias_in_blocks(bias, S, count, width, radius)
    context = tf.matmul(attention_probabilities(scores, near, rate, seed), v)
    return join_heads(tf.reshape(context, [B, num_heads, count * width, H])[:, :, :S])


@custom_gradient
def _with_neighbors(blocks):
    """[B, N, T + 2, c, H] -> [B, N, T, 3c, H]: each block between the two beside it."""
    B, N, T, c, H = sizes(blocks)
    three = tf.gather(blocks, tf.range(T - 2)[:, None] + tf.range(3), axis=2)

    def gradient(upstream):  # faster than that of `gather`, which scatters
        parts = tf.unstack(tf.reshape(upstream, [B, N, T - 2, 3, c, H]), axis=3)
        around = ([i, 2 - i] for i in range(3))
        return sum(tf.pad(x, [[0, 0], [0, 0], at, [0, 0], [0, 0]]) for x, at in zip(parts, around))

    return tf.reshape(three, [B, N, T - 2, 3 * c, H]), gradient


def _bias_in_blocks(bias, S, count, width, radius):
    """[B, 1, 1 or S, S] -> [B, 1, T, 1 or c, 3c], with the window's [T, c, 3c]."""
    query, key = tf.range(width)[:, None], tf.range(-width, 2 * width)
    place = tf.range(count)[:, None] * width + key  # [T, 3c], of the keys
    hidden = tf.abs(query - key) > radius
    hidden |= ((place < 0) | (place >= S))[:, None]  # [T, c, 3c]
    place = tf.clip_by_value(place, 0, S - 1)
    if bias.shape[2] == 1:
        of_keys = tf.gather(bias[:, 0, 0], place, axis=1)[:, None, :, None]  # [B, 1, T, 1, 3c]
    else:
        rows = tf.pad(bias[:, 0], [[0, 0], [0, count * width - S], [0, 0]])
        rows = tf.transpose(tf.reshape(rows, [-1, count, width, S]), [1, 0, 2, 3])
        of_keys = tf.gather(rows, place, axis=3, batch_dims=1)  # [T, B, c, 3c]
        of_keys = tf.transpose(of_keys, [1, 0, 2, 3])[:, None]
    return of_keys + tf.cast(hidden, bias.dtype) * PADDING_SCORE


def _head_by_head(q, k, v, num_heads, bias):
    """`attend` in operations that XNNPACK supports for any B and S: without reshaping to shapes
    known only at run time."""
    if bias.shape.rank:
        bias = tf.squeeze(bias, 1)
    queries, keys, values = (tf.split(x, num_heads, -1) for x in (q, k, v))  # N of [B, S, H] each
    scores = [tf.matmul(q, k, transpose_b=True) for q, k in zip(queries, keys)]
    probabilities = [tf.nn.softmax(of_head + bias) for of_head in scores]
    contexts = [tf.matmul(p, v) for p, v in zip(probabilities, values)]
    return tf.concat(contexts, -1), tf.stack(probabilities, 1)


def attention_probabilities(
    scores: tf.Tensor, bias: tf.Tensor, rate: float, seed: tf.Tensor | None
) -> tf.Tensor:
    """Computes dropout(softmax(scores + bias)).

    Args:
        scores: [B, N, S, S], or [B, N, T, c, 3c] of blocks.
        bias: [B, 1, 1, S], causal [B, 1, S, S], or of rank 0; receives no gradient.
        seed: int32 [2] of the dropout; not read at a rate of 0.
    """

    drops = dropping(scores, seed, rate)

    @custom_gradient
    def probabilities(scores):
        # Not fused: XLA's reductions over the last axis are slow on CPUs; this softmax is fast.
        undropped = tf.nn.softmax(scores + bias)

        def gradient(upstream):
            if is_fused(upstream):
                return _attention_probabilities_gradient(upstream, undropped, seed, rate)
            upstream = drops(tf.cast(upstream, tf.float32))
            return _attention_probabilities_gradient.plain(upstream, undropped, seed, 0.0)

        return drops(undropped), gradient

    return probabilities(scores)


def attention_probabilities_reference(scores, bias, rate, seed):
    """Readable form of `attention_probabilities`."""
    return dropout_reference(tf.nn.softmax(scores + bias), rate, seed)


@fused
def _attention_probabilities_gradient(upstream, undropped, seed, rate):
    dtype, upstream = undropped.dtype, tf.cast(upstream, tf.float32)
    if rate > 0.0:
        upstream = drop.plain(upstream, seed, rate)
    undropped = tf.cast(undropped, tf.float32)
    slope = last_axis_mean(upstream * undropped) * tf.cast(sizes(undropped)[-1], tf.float32)
    return tf.cast((upstream - slope) * undropped, dtype)


def split_heads(tensor: tf.Tensor, num_heads: int) -> tf.Tensor:
    """[B, S, N * H] -> [B, N, S, H]."""
    B, S, A = sizes(tensor)
    return _swap_tokens_and_heads(tf.reshape(tensor, [B, S, num_heads, A // num_heads]))


def split_heads_reference(tensor, num_heads):
    """Readable form of `split_heads`."""
    return tf.stack(tf.split(tensor, num_heads, axis=-1), axis=1)


def join_heads(tensor: tf.Tensor) -> tf.Tensor:
    """[B, N, S, H] -> [B, S, N * H]."""
    B, N, S, H = sizes(tensor)
    return tf.reshape(_swap_tokens_and_heads(tensor), [B, S, N * H])


def join_heads_reference(tensor):
    """Readable form of `join_heads`."""
    return tf.concat(tf.unstack(tensor, axis=1), axis=-1)


@custom_gradient
def _swap_tokens_and_heads(tensor):
    """[B, S, N, H] <-> [B, N, S, H]."""
    return _swap(tensor), _swap


def _swap(tensor):
    if not running_on_cpu_only():  # a compiler merges it into the products around it
        return tf.transpose(tensor, [0, 2, 1, 3])
    # As integers: TensorFlow transposes floats with oneDNN, which takes 50 us to start, five times
    # as long as the whole transposition of a short text.
    integers = {2: tf.int16, 4: tf.int32}[tensor.dtype.size]
    swapped = tf.transpose(tf.bitcast(tensor, integers), [0, 2, 1, 3])
    return tf.bitcast(swapped, tensor.dtype)

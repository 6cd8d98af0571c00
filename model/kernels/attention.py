"""Attention: its two matrix products and the operations around them."""

from __future__ import annotations

import tensorflow as tf

from convbert.common.backend import built_for_litert
from convbert.model.kernels.fusion import (
    fused,
    is_fused,
    last_axis_mean,
    running_on_cpu_only,
    sizes,
)
from convbert.model.kernels.stateless_dropout import drop, dropout_reference, dropping


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
        scores: [B, N, S, S].
        bias: [B, 1, 1, S], causal [B, 1, S, S], or of rank 0; receives no gradient.
        seed: int32 [2] of the dropout; not read at a rate of 0.
    """

    drops = dropping(scores, seed, rate)

    @tf.custom_gradient
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


@tf.custom_gradient
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

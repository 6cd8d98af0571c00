"""The two convolutions of SDConv: with a kernel per token, and with a kernel per channel."""

from __future__ import annotations

import functools

import tensorflow as tf

from convbert.common.backend import built_for_litert
from convbert.model.kernels.fusion import (
    custom_gradient,
    fused,
    last_axis_mean,
    on_matrix_unit,
    running_on_cpu_only,
    sizes,
)


def lightweight_conv(
    values: tf.Tensor, logits: tf.Tensor, num_heads: int, padding: str = "same"
) -> tf.Tensor:
    """LConv(V, softmax(logits_i), i): a kernel per token, shared by the channels of a head.

    output[b, i, c] = sum_k softmax(logits[b, i, n(c)])_k * values[b, i + k - (K - 1) // 2, c],
    where n(c) is the head of channel c, k counts from 0 (the paper's j from 1), and values are 0
    beyond both ends. Computed as K shifted products, or on a TPU as one with a band matrix; the
    original unfolds values into K copies.

    Args:
        values: [B, S, A]; with "valid" padding [B, K - 1 + S, A].
        logits: [B, S, N * K]; the first K belong to the first head.
        num_heads: N, a divisor of A.
        padding: as in Keras: "same"; "causal", where windows end at their token, i + k - (K - 1);
            or "valid", which is causal and takes the K - 1 values before the first window.

    Returns:
        [B, S, A].
    """
    if built_for_litert():
        return _head_by_head(values, logits, num_heads, padding)
    if padding == "valid":  # one token at a time: unfolding takes fewer operations
        exact, exact_logits = (tf.cast(x, tf.float32) for x in (values, logits))
        output = lightweight_conv_reference(exact, exact_logits, num_heads, padding)
        return tf.cast(output, values.dtype)
    (B, S, taps), (_, T, A) = sizes(logits), sizes(values)
    values = tf.reshape(values, [B, T, num_heads, A // num_heads])
    logits = tf.reshape(logits, [B, S, num_heads, taps // num_heads])
    convolve = _as_band if on_matrix_unit(S) else _lightweight_conv
    return tf.reshape(convolve(values, logits, padding), [B, S, A])


def lightweight_conv_reference(values, logits, num_heads, padding="same"):
    """Readable form of `lightweight_conv`: unfolds values to the K neighbours of each token."""
    (B, S, taps), (_, T, A) = sizes(logits), sizes(values)
    K = taps // num_heads
    values = tf.reshape(values, [B, T, num_heads, A // num_heads])
    logits = tf.reshape(logits, [B, S, num_heads, K])
    padded = tf.pad(values, [[0, 0], _margins(K, padding), [0, 0], [0, 0]])
    unfolded = tf.stack([padded[:, k : k + S] for k in range(K)], axis=-1)  # [B, S, N, H, K]
    output = tf.einsum("bsnhk,bsnk->bsnh", unfolded, tf.nn.softmax(logits))
    return tf.reshape(output, [B, S, -1])


def _head_by_head(values, logits, num_heads, padding):
    """`lightweight_conv` in operations that XNNPACK supports for any B and S: without reshaping to
    shapes known only at run time. Heads are part of the batch."""
    values, logits = (tf.concat(tf.split(x, num_heads, -1), 0) for x in (values, logits))
    K = logits.shape[-1]
    weights = tf.nn.softmax(logits)  # [N * B, S, K]
    padded = tf.pad(values, [[0, 0], _margins(K, padding), [0, 0]])
    first, *others = (weights[..., k : k + 1] * _window(padded, k, K) for k in range(K))
    return tf.concat(tf.split(sum(others, first), num_heads), -1)


def _window(padded, k, K):
    """[B, S + K - 1, ...] -> [B, S, ...], S tokens from token k."""
    return padded[:, k : k - (K - 1) or None]


def _lightweight_conv(values, logits, padding):
    @custom_gradient
    def convolve(values, logits):
        def gradient(upstream):
            return _lightweight_conv_gradient(values, logits, upstream, padding)

        return _lightweight_conv_forward(values, logits, padding), gradient

    return convolve(values, logits)


def _as_band(values, logits, padding):
    """`_lightweight_conv` as a product with band matrices [B, N, S, S], as attention has them.

    A TPU's matrix unit takes less time for their zeros than its vector unit for shifting and
    weighting the values.
    """
    K, token = logits.shape[-1], tf.range(logits.shape[1])
    tap_of_key = token - token[:, None] + _margins(K, padding)[0]  # [S, S], for each query
    swap = functools.partial(tf.transpose, perm=[0, 2, 1, 3])  # [B, S, N, ...] <-> [B, N, S, ...]

    @custom_gradient
    def convolve(values, logits):
        values, weights = swap(values), swap(_softmax(logits))
        band = tf.zeros([], weights.dtype)
        for k in range(K):
            band = tf.where(tap_of_key == k, weights[..., k : k + 1], band)
        band = tf.cast(band, values.dtype)

        def gradient(upstream):
            upstream = swap(upstream)
            to_values = tf.matmul(band, upstream, transpose_a=True)
            to_band = tf.cast(tf.matmul(upstream, values, transpose_b=True), tf.float32)
            taps = [tf.where(tap_of_key == k, to_band, 0.0) for k in range(K)]
            to_weights = tf.stack([tf.reduce_sum(tap, -1) for tap in taps], -1)
            return swap(to_values), swap(_softmax_gradient(to_weights, weights, logits.dtype))

        return swap(tf.matmul(band, values)), gradient

    return convolve(values, logits)


def _margins(K, padding):
    """Returns the number of zeros before the first token and after the last one."""
    return {"same": ((K - 1) // 2, K // 2), "causal": (K - 1, 0), "valid": (0, 0)}[padding]


# Forty operations become one, which pays off even for one text of 128 tokens at base size.
@fused(sooner=8)
def _lightweight_conv_forward(values, logits, padding):
    K = logits.shape[-1]
    weights = tf.split(_softmax(logits), K, axis=-1)  # K of [B, S, N, 1]
    padded = _pad_tokens(tf.cast(values, tf.float32), *_margins(K, padding))
    output = _sum_one_by_one(K, lambda k: weights[k] * _window(padded, k, K))
    return tf.cast(output, values.dtype)


@fused(sooner=8)
def _lightweight_conv_gradient(values, logits, upstream, padding):
    K = logits.shape[-1]
    before, after = _margins(K, padding)
    upstream = tf.cast(upstream, tf.float32)
    weights = _softmax(logits)  # [B, S, N, K]
    padded = _pad_tokens(tf.cast(values, tf.float32), before, after)
    means = []
    for k in range(K):
        with tf.control_dependencies(means[-1:]):
            means.append(last_axis_mean(upstream * _window(padded, k, K)))
    to_weights = tf.concat(means, -1) * values.shape[-1]
    to_logits = _softmax_gradient(to_weights, weights, logits.dtype)
    # values[j] meets weight k at position i = j - k + before.
    upstream, weights = (_pad_tokens(x, K - 1 - before, K - 1 - after) for x in (upstream, weights))

    def back(start):
        k = K - 1 - start
        return _window(weights, start, K)[..., k : k + 1] * _window(upstream, start, K)

    to_values = _sum_one_by_one(K, back)
    return tf.cast(to_values, values.dtype), to_logits


def _sum_one_by_one(K, term):
    """term(0) + ... + term(K - 1), each computed after the one before is added: op by op, all K
    would be in memory at once, as large as the unfolded values."""
    total = term(0)
    for k in range(1, K):
        with tf.control_dependencies([total]):
            total += term(k)
    return total


def _softmax(logits):
    """Softmax over the K weights of a convolution kernel; tf.nn.softmax would not fuse."""
    logits = tf.cast(logits, tf.float32)
    exponentials = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
    return exponentials / tf.reduce_sum(exponentials, -1, keepdims=True)


def _softmax_gradient(upstream, weights, dtype):
    slope = tf.reduce_sum(upstream * weights, -1, keepdims=True)
    return tf.cast(weights * (upstream - slope), dtype)


def _pad_tokens(tensor, before, after):
    """Pads [B, S, N, ...] to [B, before + S + after, N, ...] with zeros."""
    return tf.pad(tensor, [[0, 0], [before, after], [0, 0], [0, 0]])


def depthwise_conv(inputs: tf.Tensor, weights: tf.Tensor, padding: str = "same") -> tf.Tensor:
    """Convolves each channel with its own kernel, the same at every token.

    Uses float32 on a CPU, where the gradient is slower with bfloat16.

    Args:
        inputs: [B, S, D]; 0 beyond both ends.
        weights: [K, D].
        padding: see `lightweight_conv`.

    Returns:
        [B, S, D], or [B, S - K + 1, D] with "valid" padding, in the dtype of `inputs`.
    """
    dtype = tf.float32 if running_on_cpu_only() else inputs.dtype
    output = _depthwise_conv(tf.cast(inputs, dtype), tf.cast(weights, dtype), padding)
    return tf.cast(output, inputs.dtype)


def depthwise_conv_reference(inputs, weights, padding="same"):
    """Readable form of `depthwise_conv`."""
    K = weights.shape[0]
    padded = tf.pad(inputs, [[0, 0], _margins(K, padding), [0, 0]])
    return tf.add_n([_window(padded, k, K) * weights[k] for k in range(K)])


def _depthwise_conv(inputs, weights, padding):
    K, D = weights.shape
    none, tokens = [0, 0], list(_margins(K, padding))

    def options(axis):
        """Returns options for tokens on this axis of [B, 1, S, D] or [B, S, 1, D]."""
        explicit = [none, tokens if axis == 1 else none, tokens if axis == 2 else none, none]
        named = explicit if padding == "causal" else padding.upper()
        return {"strides": [1, 1, 1, 1], "padding": named}

    @custom_gradient
    def convolve(inputs, weights):
        image, filters = tf.expand_dims(inputs, 1), tf.reshape(weights, [1, K, D, 1])

        def gradient(upstream):
            to_image = tf.nn.depthwise_conv2d_backprop_input(
                sizes(image), filters, tf.expand_dims(upstream, 1), **options(2)
            )
            # With tokens in a column, a CPU takes a third to half of the time.
            axis, shape = (1, [K, 1, D, 1]) if running_on_cpu_only() else (2, [1, K, D, 1])
            to_filters = tf.nn.depthwise_conv2d_backprop_filter(
                tf.expand_dims(inputs, 3 - axis),
                shape,
                tf.expand_dims(upstream, 3 - axis),
                **options(axis),
            )
            return tf.squeeze(to_image, 1), tf.reshape(to_filters, [K, D])

        return tf.squeeze(tf.nn.depthwise_conv2d(image, filters, **options(2)), 1), gradient

    return convolve(inputs, weights)

"""The two convolutions of SDConv: with a kernel for every token, and with one for every channel."""

from __future__ import annotations

import tensorflow as tf

from model.kernels.fusion import fused, last_axis_mean, running_on_cpu_only, sizes


def lightweight_conv(values: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """LConv(V, softmax(logits_i), i): a kernel for every token, shared by the channels of a head.

    output[b, i, c] = sum_k softmax(logits[b, i, n(c)])_k * values[b, i + k - (K - 1) / 2, c], where
    n(c) is the head of channel c and values are 0 beyond both ends. Computed as K shifted products:
    the original unfolds the values into a K-fold copy first.

    Args:
        values: [B, S, A].
        logits: [B, S, N, K], K odd, N a divisor of A.

    Returns:
        [B, S, A].
    """
    B, S, A = sizes(values)
    N = logits.shape[2]
    output = _lightweight_conv(tf.reshape(values, [B, S, N, A // N]), logits)  # [B, S, N, H]
    return tf.reshape(output, [B, S, A])


def lightweight_conv_reference(values: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """`lightweight_conv`, readable: the values unfolded to all K neighbours of every token."""
    B, S, N, K = sizes(logits)
    values = tf.reshape(values, [B, S, N, -1])
    padded = tf.pad(values, [[0, 0], [K // 2, K // 2], [0, 0], [0, 0]])
    unfolded = tf.stack([padded[:, k : k + S] for k in range(K)], axis=-1)  # [B, S, N, H, K]
    output = tf.einsum("bsnhk,bsnk->bsnh", unfolded, tf.nn.softmax(logits))
    return tf.reshape(output, [B, S, -1])


@tf.custom_gradient
def _lightweight_conv(values, logits):
    def gradient(upstream):
        return _lightweight_conv_gradient(values, logits, upstream)

    return _lightweight_conv_forward(values, logits), gradient


# Forty operations that become one: that pays for a single text of 128 tokens at base size already.
@fused(sooner=8)
def _lightweight_conv_forward(values, logits):
    S, K = sizes(values)[1], logits.shape[-1]
    weights = tf.split(_softmax(logits), K, axis=-1)  # K of [B, S, N, 1]
    padded = _pad_tokens(tf.cast(values, tf.float32), K)
    output = _sum_one_by_one(K, lambda k: weights[k] * padded[:, k : k + S])
    return tf.cast(output, values.dtype)


@fused(sooner=8)
def _lightweight_conv_gradient(values, logits, upstream):
    S, K = sizes(values)[1], logits.shape[-1]
    upstream = tf.cast(upstream, tf.float32)
    weights = _softmax(logits)  # [B, S, N, K]
    padded = _pad_tokens(tf.cast(values, tf.float32), K)
    means = []
    for k in range(K):
        with tf.control_dependencies(means[-1:]):
            means.append(last_axis_mean(upstream * padded[:, k : k + S]))
    to_weights = tf.concat(means, -1) * values.shape[-1]
    slope = tf.reduce_sum(to_weights * weights, -1, keepdims=True)
    to_logits = weights * (to_weights - slope)
    # values[j] meets weight k at position i = j - k + (K - 1) / 2.
    upstream, weights = _pad_tokens(upstream, K), _pad_tokens(weights, K)

    def back(start):
        k = K - 1 - start
        return weights[:, start : start + S, :, k : k + 1] * upstream[:, start : start + S]

    to_values = _sum_one_by_one(K, back)
    return tf.cast(to_values, values.dtype), tf.cast(to_logits, logits.dtype)


def _sum_one_by_one(K, term):
    """term(0) + ... + term(K - 1), each made when the one before has been added: op by op, all K
    would be there at once, as large together as the unfolded values."""
    total = term(0)
    for k in range(1, K):
        with tf.control_dependencies([total]):
            total += term(k)
    return total


def _softmax(logits):
    """Over the few weights of a convolution kernel; tf.nn.softmax would not fuse."""
    logits = tf.cast(logits, tf.float32)
    exponentials = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
    return exponentials / tf.reduce_sum(exponentials, -1, keepdims=True)


def _pad_tokens(tensor, K):
    """[B, S, ...] -> [B, S + K - 1, ...] with zeros."""
    return tf.pad(tensor, [[0, 0], [(K - 1) // 2] * 2, [0, 0], [0, 0]])


def depthwise_conv(inputs: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Convolves every channel with a kernel of its own, the same everywhere.

    On a CPU in float32: with bfloat16 its gradient takes longer there.

    Args:
        inputs: [B, S, D]; 0 beyond both ends.
        weights: [K, D].

    Returns:
        [B, S, D] in the dtype of `inputs`.
    """
    dtype = tf.float32 if running_on_cpu_only() else inputs.dtype
    output = _depthwise_conv(tf.cast(inputs, dtype), tf.cast(weights, dtype))
    return tf.cast(output, inputs.dtype)


def depthwise_conv_reference(inputs: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """`depthwise_conv`, readable."""
    S, K = sizes(inputs)[1], weights.shape[0]
    padded = tf.pad(inputs, [[0, 0], [K // 2, K // 2], [0, 0]])
    return tf.add_n([weights[k] * padded[:, k : k + S] for k in range(K)])


@tf.custom_gradient
def _depthwise_conv(inputs, weights):
    K, D = weights.shape
    options = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    image, filters = tf.expand_dims(inputs, 1), tf.reshape(weights, [1, K, D, 1])  # [B, 1, S, D]

    def gradient(upstream):
        to_image = tf.nn.depthwise_conv2d_backprop_input(
            sizes(image), filters, tf.expand_dims(upstream, 1), **options
        )
        # With the tokens in a column a CPU takes a third to a half of the time.
        axis, shape = (2, [K, 1, D, 1]) if running_on_cpu_only() else (1, [1, K, D, 1])
        to_filters = tf.nn.depthwise_conv2d_backprop_filter(
            tf.expand_dims(inputs, axis), shape, tf.expand_dims(upstream, axis), **options
        )
        return tf.squeeze(to_image, 1), tf.reshape(to_filters, [K, D])

    return tf.squeeze(tf.nn.depthwise_conv2d(image, filters, **options), 1), gradient

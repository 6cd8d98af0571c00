"""The convolution half of ConvBERT's mixed attention (section 3 of the ConvBERT paper)."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.config import EncoderConfig
from model.kernels import affine, fused, on_processor, row_mean, sizes
from model.layers import dense, initializer


@tf.custom_gradient
def dynamic_convolution(values: tf.Tensor, logits: tf.Tensor, token_mask: tf.Tensor):
    """Convolves every position with a kernel of its own, shared by the channels of a head.

    output[b, i, n] = sum_k softmax(logits[b, i, n])_k * values[b, i + k - (K - 1) / 2, n], where
    values are 0 beyond both ends and where `token_mask` is 0. Written as K shifted products: the
    original unfolds the values into a K-fold copy first.

    Args:
        values: [B, S, N, H].
        logits: [B, S, N, K], K odd.
        token_mask: [B, S, 1, 1], or of rank 0; receives no gradient.

    Returns:
        [B, S, N, H].
    """

    def gradient(upstream):
        return *_convolve_gradient(values, logits, token_mask, upstream), None

    return _convolve(values, logits, token_mask), gradient


# Forty operations that become one: that pays for a single text of 128 tokens already.
@fused(sooner=8)
def _convolve(values, logits, token_mask):
    S, K = sizes(values)[1], logits.shape[-1]
    taps = tf.split(_softmax(logits), K, axis=-1)  # K of [B, S, N, 1]
    padded = _pad_tokens(_masked(values, token_mask), K)
    output = _sum_in_turns(K, lambda k: taps[k] * padded[:, k : k + S])
    return tf.cast(output, values.dtype)


@fused(sooner=8)
def _convolve_gradient(values, logits, token_mask, upstream):
    S, K = sizes(values)[1], logits.shape[-1]
    upstream = tf.cast(upstream, tf.float32)
    kernels = _softmax(logits)  # [B, S, N, K]
    padded = _pad_tokens(_masked(values, token_mask), K)
    sums = []
    for k in range(K):
        with tf.control_dependencies(sums[-1:]):
            sums.append(row_mean(upstream * padded[:, k : k + S]))
    to_kernels = tf.concat(sums, -1) * values.shape[-1]
    slope = tf.reduce_sum(to_kernels * kernels, -1, keepdims=True)
    to_logits = kernels * (to_kernels - slope)
    # values[j] meets tap k at position i = j - k + (K - 1) / 2.
    upstream, taps = _pad_tokens(upstream, K), _pad_tokens(kernels, K)

    def back(start):
        k = K - 1 - start
        return taps[:, start : start + S, :, k : k + 1] * upstream[:, start : start + S]

    to_values = _sum_in_turns(K, back)
    return _masked(to_values, token_mask, values.dtype), tf.cast(to_logits, logits.dtype)


def _sum_in_turns(K, term):
    """term(0) + ... + term(K - 1), each made when the one before has been added: op by op, all K
    would be there at once, as large together as the unfolded values."""
    total = term(0)
    for k in range(1, K):
        with tf.control_dependencies([total]):
            total += term(k)
    return total


def _softmax(logits):
    """Over the few taps of a kernel; tf.nn.softmax would not fuse."""
    logits = tf.cast(logits, tf.float32)
    exponentials = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
    return exponentials / tf.reduce_sum(exponentials, -1, keepdims=True)


def _masked(values, token_mask, dtype=tf.float32):
    return tf.cast(tf.cast(values, tf.float32) * tf.cast(token_mask, tf.float32), dtype)


def _pad_tokens(tensor, K):
    """[B, S, ...] -> [B, S + K - 1, ...] with zeros."""
    return tf.pad(tensor, [[0, 0], [(K - 1) // 2] * 2, [0, 0], [0, 0]])


@tf.custom_gradient
def depthwise_convolution(inputs: tf.Tensor, taps: tf.Tensor):
    """Convolves every channel with a kernel of its own, the same everywhere.

    Args:
        inputs: float32 [B, S, D]; 0 beyond both ends.
        taps: float32 [K, D].

    Returns:
        [B, S, D].
    """
    K, D = taps.shape
    options = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    rows, row_taps = tf.expand_dims(inputs, 1), tf.reshape(taps, [1, K, D, 1])  # [B, 1, S, D]

    def gradient(upstream):
        to_rows = tf.nn.depthwise_conv2d_backprop_input(
            sizes(rows), row_taps, tf.expand_dims(upstream, 1), **options
        )
        # With the tokens in a column a processor takes a third to a half of the time.
        axis, shape = (2, [K, 1, D, 1]) if on_processor() else (1, [1, K, D, 1])
        to_taps = tf.nn.depthwise_conv2d_backprop_filter(
            tf.expand_dims(inputs, axis), shape, tf.expand_dims(upstream, axis), **options
        )
        return tf.squeeze(to_rows, 1), tf.reshape(to_taps, [K, D])

    return tf.squeeze(tf.nn.depthwise_conv2d(rows, row_taps, **options), 1), gradient


class SpanKey(tf_keras.layers.Layer):
    """The span-aware key: a depthwise-separable convolution over K tokens. `conv_attn_key`.

    Keras' SeparableConv1D computes the same with a slower pointwise step.

    Shape: [B, S, D] -> [B, S, A]. Weights: depthwise_kernel [K, D, 1], pointwise_kernel [1, D, A],
    bias [A].
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def build(self, input_shape):
        K, D, A = self.config.conv_kernel_size, input_shape[-1], self.config.mixer_size
        taps = tf_keras.initializers.TruncatedNormal(stddev=1 / K)
        self.depthwise_kernel = self.add_weight("depthwise_kernel", [K, D, 1], initializer=taps)
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel", [1, D, A], initializer=initializer(self.config)
        )
        self.bias = self.add_weight("bias", [A], initializer="zeros")

    def call(self, inputs):
        # In float32: with bfloat16 its gradient takes longer on a processor.
        taps = tf.cast(tf.squeeze(self.depthwise_kernel, 2), tf.float32)  # [K, D]
        spans = depthwise_convolution(tf.cast(inputs, tf.float32), taps)  # [B, S, D]
        return affine(tf.cast(spans, inputs.dtype), tf.squeeze(self.pointwise_kernel, 0), self.bias)


class Convolution(tf_keras.layers.Layer):
    """Mixes neighbouring tokens with a "static", "dynamic" or "span" kernel.

    - static: a learned depthwise kernel, the same everywhere.
    - dynamic: softmax over the K taps of a projection of the token's value (Wu et al. 2019).
    - span: the same, of the query times a span-aware key, which a depthwise-separable convolution
      computes from the K tokens around (ConvBERT, SDConv).

    Variable names are the original's (`conv_attn_key`, `conv_attn_kernel`, `conv_attn_point`).
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        K, A = config.conv_kernel_size, config.mixer_size
        self.value = dense(config, A, "conv_attn_point")
        if config.convolution == "static":
            taps = tf_keras.initializers.TruncatedNormal(stddev=1 / K)
            self.depthwise = tf_keras.layers.DepthwiseConv1D(
                K, padding="same", use_bias=False, depthwise_initializer=taps, name="depthwise"
            )
        else:
            self.kernel = dense(config, config.num_heads * K, "conv_attn_kernel")
        if config.convolution == "span":
            self.span_key = SpanKey(config, name="conv_attn_key")

    def call(self, hidden, query, token_mask, values=None):
        """Convolves.

        Args:
            hidden: [B, S, D].
            query: [B, S, A]; only the span kernel reads it.
            token_mask: [B, S, 1], 0 at padding, or None to let padding in as the original does.
            values: [B, S, A], `self.value` of hidden, where it has been computed already.

        Returns:
            [B, S, A].
        """
        values = self.value(hidden) if values is None else values
        token_mask = tf.cast(1.0 if token_mask is None else token_mask, values.dtype)
        if self.config.convolution == "static":
            return self.depthwise(values * token_mask)
        if self.config.convolution == "span":
            source = self.span_key(hidden * token_mask) * query
        else:
            source = values * token_mask
        B, S, _ = sizes(hidden)
        N, H, K = self.config.num_heads, self.config.head_size, self.config.conv_kernel_size
        output = dynamic_convolution(
            tf.reshape(values, [B, S, N, H]),
            tf.reshape(self.kernel(source), [B, S, N, K]),
            token_mask[..., None] if token_mask.shape.rank else token_mask,
        )  # [B, S, N, H]
        return tf.reshape(output, [B, S, N * H])

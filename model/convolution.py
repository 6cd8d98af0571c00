"""The convolution half of ConvBERT's mixed attention (section 3 of the ConvBERT paper)."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.config import EncoderConfig
from model.kernels import affine, dynamic_convolution
from model.layers import dense, initializer


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
        # In float32: with bfloat16 its gradient takes five times as long on a processor.
        rows = tf.expand_dims(tf.cast(inputs, tf.float32), 1)  # [B, 1, S, D]
        taps = tf.expand_dims(tf.cast(self.depthwise_kernel, tf.float32), 0)  # [1, K, D, 1]
        spans = tf.nn.depthwise_conv2d(rows, taps, strides=[1, 1, 1, 1], padding="SAME")
        spans = tf.cast(tf.squeeze(spans, 1), inputs.dtype)  # [B, S, D]
        return affine(spans, tf.squeeze(self.pointwise_kernel, 0), self.bias)


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
        B, S = tf.shape(hidden)[0], tf.shape(hidden)[1]
        N, H, K = self.config.num_heads, self.config.head_size, self.config.conv_kernel_size
        output = dynamic_convolution(
            tf.reshape(values, [B, S, N, H]),
            tf.reshape(self.kernel(source), [B, S, N, K]),
            token_mask[..., None] if token_mask.shape.rank else token_mask,
        )  # [B, S, N, H]
        return tf.reshape(output, [B, S, N * H])

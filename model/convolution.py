"""The convolution half of ConvBERT's mixed attention (section 3 of the ConvBERT paper)."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.config import EncoderConfig
from model.layers import dense, initializer


def dynamic_convolution(values: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
    """Convolves every position with a kernel of its own, shared by the channels of a head.

    output[b, i, n] = sum_k kernels[b, i, n, k] * values[b, i + k - (K - 1) / 2, n], with zeros
    beyond both ends. Written as K shifted products: the original unfolds the values into a
    K-fold copy first.

    Args:
        values: [B, S, N, H].
        kernels: [B, S, N, K], K odd.

    Returns:
        [B, S, N, H].
    """
    S, K = tf.shape(values)[1], kernels.shape[-1]
    reach = (K - 1) // 2
    padded = tf.pad(values, [[0, 0], [reach, reach], [0, 0], [0, 0]])  # [B, S + K - 1, N, H]
    return tf.add_n([kernels[..., k : k + 1] * padded[:, k : k + S] for k in range(K)])


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
        taps = tf_keras.initializers.TruncatedNormal(stddev=1 / K)
        if config.convolution == "static":
            self.depthwise = tf_keras.layers.DepthwiseConv1D(
                K, padding="same", use_bias=False, depthwise_initializer=taps, name="depthwise"
            )
        else:
            self.kernel = dense(config, config.num_heads * K, "conv_attn_kernel")
        if config.convolution == "span":
            self.span_key = tf_keras.layers.SeparableConv1D(
                A,
                K,
                padding="same",
                depthwise_initializer=taps,
                pointwise_initializer=initializer(config),
                name="conv_attn_key",
            )

    def call(self, hidden, query, token_mask):
        """Convolves.

        Args:
            hidden: [B, S, D].
            query: [B, S, A]; only the span kernel reads it.
            token_mask: [B, S, 1], 0 at padding, or None to let padding in as the original does.

        Returns:
            [B, S, A].
        """
        values = self.value(hidden)  # [B, S, A]
        if token_mask is not None:
            hidden, values = hidden * token_mask, values * token_mask
        if self.config.convolution == "static":
            return self.depthwise(values)
        source = self.span_key(hidden) * query if self.config.convolution == "span" else values
        B, S = tf.shape(hidden)[0], tf.shape(hidden)[1]
        N, H, K = self.config.num_heads, self.config.head_size, self.config.conv_kernel_size
        kernels = tf.nn.softmax(tf.reshape(self.kernel(source), [B, S, N, K]))
        output = dynamic_convolution(tf.reshape(values, [B, S, N, H]), kernels)  # [B, S, N, H]
        return tf.reshape(output, [B, S, N * H])

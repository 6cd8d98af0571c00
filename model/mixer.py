"""How tokens exchange information: self-attention, convolution, or both side by side (ConvBERT)."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.config import EncoderConfig
from model.convolution import Convolution
from model.kernels import affine, attention_probabilities, sizes, swap_tokens_and_heads
from model.layers import Dense, dense

# Added to the scores of padding keys; the original's value, finite in bfloat16 too.
PADDING_SCORE = -10000.0


def attention_bias(input_mask: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """What is added to attention scores: [B, S] mask of 1 and 0 -> [B, 1, 1, S]."""
    return (1.0 - tf.cast(input_mask, dtype)[:, None, None, :]) * PADDING_SCORE


class SelfAttention(tf_keras.layers.Layer):
    """Multi-head scaled dot-product attention over N' heads of width H."""

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.key = dense(config, config.mixer_size, "key")
        self.value = dense(config, config.mixer_size, "value")

    def call(self, query, key, value, bias, training=False, seed=None):
        """Attends.

        Args:
            query, key, value: [B, S, A].
            bias: [B, 1, 1, S], added to the scores.
            training: whether dropout is on.
            seed: int32 [2] for dropout in training.

        Returns:
            The context [B, S, A] and the attention probabilities [B, N', S, S].
        """
        B, S, _ = sizes(query)
        N, H = self.config.num_heads, self.config.head_size

        def split_heads(projected):  # [B, S, A] -> [B, N, S, H]
            return swap_tokens_and_heads(tf.reshape(projected, [B, S, N, H]))

        query = split_heads(query * H**-0.5)
        scores = tf.matmul(query, split_heads(key), transpose_b=True)  # [B, N, S, S]
        rate = self.config.attention_probs_dropout_prob if training else 0.0
        probabilities = attention_probabilities(scores, bias, rate, seed)
        context = tf.matmul(probabilities, split_heads(value))  # [B, N, S, H]
        return tf.reshape(swap_tokens_and_heads(context), [B, S, N * H]), probabilities


class TokenMixer(tf_keras.layers.Layer):
    """`token_mixer`: "attention", "convolution", or "mixed", which concatenates the two.

    Both halves have A = N' · H channels and share the query, so that mixed attention is
    Cat(Self-Attn(Q, K, V), SDConv(Q, K_s, V)) of the ConvBERT paper.
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        attends = config.token_mixer != "convolution"
        convolves = config.token_mixer != "attention"
        uses_query = attends or config.convolution == "span"
        self.query = dense(config, config.mixer_size, "query") if uses_query else None
        self.attention = SelfAttention(config, name="self_attention") if attends else None
        self.convolution = Convolution(config, name="convolution") if convolves else None

    def call(self, hidden, bias, token_mask, training=False, seed=None):
        """Mixes.

        Args:
            hidden: [B, S, D].
            bias: [B, 1, 1, S], added to the attention scores.
            token_mask: [B, S, 1] or None, for the convolution.
            training: whether dropout is on.
            seed: int32 [2] for dropout in training.

        Returns:
            The mixed tokens, [B, S, A] or for "mixed" [B, S, 2A], and the attention probabilities
            [B, N', S, S] (None without attention).
        """
        layers = [self.query]
        if self.attention is not None:
            layers += [self.attention.key, self.attention.value]
        if self.convolution is not None:
            layers += [self.convolution.value]
        layers = [layer for layer in layers if layer is not None]
        projected = project(hidden, layers) if training else [layer(hidden) for layer in layers]
        query = projected.pop(0) if self.query is not None else None
        mixed, probabilities = [], None
        if self.attention is not None:
            context, probabilities = self.attention(
                query, projected.pop(0), projected.pop(0), bias, training=training, seed=seed
            )
            mixed.append(context)
        if self.convolution is not None:
            if training:
                # After the attention: two large products at once take longer than in turns. For
                # short texts, whose products keep one core busy, beside it.
                with tf.control_dependencies(mixed):
                    hidden = tf.identity(hidden)
            mixed.append(self.convolution(hidden, query, token_mask, values=projected.pop(0)))
        return tf.concat(mixed, axis=-1), probabilities


def project(inputs: tf.Tensor, layers: list[Dense]) -> list[tf.Tensor]:
    """What several linear dense layers make of [..., in], by one matrix product.

    It pays in training, where the gradient is one product as well. In inference, joining the
    kernels costs more than it saves: a twentieth of the time for a short text.
    """
    for layer in layers:
        if not layer.built:
            with tf.name_scope(layer.name):
                layer.build(inputs.shape)
    kernel = tf.concat([layer.kernel for layer in layers], 1)
    bias = tf.concat([layer.bias for layer in layers], 0)
    return tf.split(affine(inputs, kernel, bias), [layer.units for layer in layers], axis=-1)

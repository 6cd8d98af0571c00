"""What is put on top of an encoder to pre-train it."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.config import EncoderConfig
from model.kernels import add_bias, sizes
from model.layers import Embeddings, LayerNorm, dense


class MaskedLMHead(tf_keras.layers.Layer):
    """Predicts word pieces at given positions. `generator_predictions`.

    Dense D -> E, activation, layer norm, then the transposed word embeddings plus a bias.

    Shape: hidden [B, S, D], positions int32 [B, P] -> logits float32 [B, P, V].
    """

    def __init__(self, config: EncoderConfig, embeddings: Embeddings, **kwargs):
        super().__init__(**kwargs)
        self.embeddings = embeddings
        self.transform = dense(
            config, embeddings.config.embedding_size, "dense", activation=config.hidden_act
        )
        self.norm = LayerNorm()

    def build(self, input_shape):
        vocab_size = self.embeddings.config.vocab_size
        self.output_bias = self.add_weight("output_bias", [vocab_size], initializer="zeros")

    def call(self, hidden, positions):
        masked = tf.gather(hidden, positions, batch_dims=1)  # [B, P, D]
        masked = self.norm(self.transform(masked))  # [B, P, E]
        table = tf.cast(self.embeddings.word_embeddings, masked.dtype)  # [V, E]
        flat = tf.reshape(masked, [-1, table.shape[1]])
        logits = tf.matmul(flat, table, transpose_b=True)  # [B * P, V]
        bias = tf.cast(self.output_bias, tf.float32)
        if logits.dtype == tf.float32:
            logits = tf.nn.bias_add(logits, bias)  # becomes part of the product
        else:
            logits = add_bias(logits, bias)
        return tf.reshape(logits, [*sizes(masked)[:-1], table.shape[0]])


class DiscriminatorHead(tf_keras.layers.Layer):
    """Says of every token whether it was replaced. `discriminator_predictions`.

    Shape: hidden [B, S, D] -> logits float32 [B, S].
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.transform = dense(config, config.hidden_size, "dense", activation=config.hidden_act)
        self.logit = dense(config, 1, "dense_1", kernel_initializer="glorot_uniform")

    def call(self, hidden):
        return tf.cast(tf.squeeze(self.logit(self.transform(hidden)), -1), tf.float32)

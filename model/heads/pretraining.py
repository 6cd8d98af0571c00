"""What is put on top of an encoder to pre-train it."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.config import BackboneConfig
from model.kernels import log_sum_exp_cross_entropy, vocabulary_log_sum_exp, vocabulary_logits
from model.layers import LayerNorm, dense


class MaskedLMHead(tf_keras.layers.Layer):
    """Predicts word pieces at given positions. Original: `generator_predictions`.

    Dense D -> E, activation, layer norm, then the transposed word embeddings plus a bias.

    Shape: hidden [B, S, D], positions int32 [B, P] -> logits float32 [B, P, V].

    Args:
        config: of the encoder below.
        embeddings: whose `word_embeddings` it shares, built.
        pieces: V, how many rows of the word embeddings are pieces of the vocabulary. Those after
            them have a bias but no logit, so that nothing can predict or draw them. By default all.
        activation: of the dense layer; by default `hidden_act`.
    """

    def __init__(
        self,
        config: BackboneConfig,
        embeddings: tf_keras.layers.Layer,
        *,
        pieces: int | None = None,
        activation: str | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.embeddings = embeddings
        rows, E = embeddings.word_embeddings.shape
        self.pieces = pieces or rows
        self.transform = dense(config, E, "dense", activation=activation or config.hidden_act)
        self.norm = LayerNorm(epsilon=config.layer_norm_eps)

    def build(self, input_shape):
        rows = self.embeddings.word_embeddings.shape[0]
        self.output_bias = self.add_weight("output_bias", [rows], initializer="zeros")

    def call(self, hidden, positions, training=False):
        masked = tf.gather(hidden, positions, batch_dims=1)  # [B, P, D]
        return vocabulary_logits(*self._factors(masked, training))

    def replaced_logits(self, hidden):
        """Logits of "was replaced", float32 [B, S], from hidden states [B, S, D].

        A class "replaced" with a score of 0 stands beside the V tokens: Equation 4 of SCRIPT is
        p = 1 / (1 + sum of exp(scores)), the sigmoid of minus the log of that sum.
        """
        return -vocabulary_log_sum_exp(*self._factors(hidden, False))

    def replaced_cross_entropy(self, hidden, replaced, weights, training=False):
        """Cross entropy of `replaced_logits`: Equation 6 of SCRIPT.

        Args:
            hidden: [B, S, D].
            replaced: float32 [B, S], 1 where a token was replaced.
            weights: float32 [B, S].

        Returns:
            The sum of weight * cross entropy; `replaced_logits`, in training without a gradient.
        """
        factors = self._factors(hidden, training)
        if training:
            loss, logits = log_sum_exp_cross_entropy(*factors, 1.0 - replaced, weights)
            return loss, -logits
        logits = -vocabulary_log_sum_exp(*factors)
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(replaced, logits)
        return tf.reduce_sum(weights * entropy), logits

    def _factors(self, hidden, training):
        """What scores are made of: states [B, S, E], word embeddings [V, E] and bias [V]."""
        states = self.norm(self.transform(hidden, training=training))
        table = tf.cast(self.embeddings.word_embeddings, states.dtype)
        bias = tf.cast(self.output_bias, tf.float32)
        if self.pieces < table.shape[0]:
            table, bias = table[: self.pieces], bias[: self.pieces]
        return states, table, bias


class DiscriminatorHead(tf_keras.layers.Layer):
    """Predicts which tokens were replaced. Original: `discriminator_predictions`.

    Shape: hidden [B, S, D] -> logits float32 [B, S].
    """

    def __init__(self, config: BackboneConfig, **kwargs):
        super().__init__(**kwargs)
        self.transform = dense(config, config.hidden_size, "dense", activation=config.hidden_act)
        self.logit = dense(config, 1, "dense_1", kernel_initializer="glorot_uniform")

    def call(self, hidden, training=False):
        transformed = self.transform(hidden, training=training)
        return tf.cast(tf.squeeze(self.logit(transformed), -1), tf.float32)

"""Pre-training heads: masked tokens, replaced tokens, the next token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from convbert.model.config import BackboneConfig
from convbert.model.kernels import (
    log_sum_exp_cross_entropy,
    vocabulary_log_sum_exp,
    vocabulary_logits,
)
from convbert.model.layers import LayerNorm, dense, initializer


class _TiedHead(tf_keras.layers.Layer):
    """Dense D -> E, activation, layer norm, then the transposed word embeddings plus a bias.

    Args:
        config: the encoder's configuration.
        embeddings: the built layer that provides `word_embeddings`.
        pieces: V, the number of rows of the word embeddings that are pieces of the vocabulary.
            Later rows have a bias but no logit, so they are never predicted. Default: all.
        activation: activation of the dense layer. Default: `hidden_act`.
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
        self.config, self.embeddings = config, embeddings
        rows, E = embeddings.word_embeddings.shape
        self.pieces = pieces or rows
        start = tf_keras.initializers.TruncatedNormal(stddev=config.output_initializer_range)
        act = activation or config.hidden_act
        self.transform = dense(config, E, "dense", activation=act, kernel_initializer=start)
        self.norm = LayerNorm(epsilon=config.layer_norm_eps, center=config.use_bias)

    def build(self, input_shape):
        rows = self.embeddings.word_embeddings.shape[0]
        # Float32 in any precision, as it is added to logits in float32.
        self.output_bias = self.add_weight(
            "output_bias", [rows], initializer="zeros", experimental_autocast=False
        )

    def transformed(self, hidden, training=False):
        """Projects hidden states to the width of the word embeddings: [..., D] -> [..., E]."""
        return self.norm(self.transform(hidden, training=training))


class MaskedLMHead(_TiedHead):
    """Predicts word pieces at given positions. Originally named `generator_predictions`.

    Shape: hidden [B, S, D], positions int32 [B, P] -> logits float32 [B, P, V].
    """

    def call(self, hidden, positions, training=False):
        masked = tf.gather(hidden, positions, batch_dims=1)  # [B, P, D]
        return vocabulary_logits(*self._factors(masked, training))

    def replaced_logits(self, hidden):
        """Returns logits of "was replaced", float32 [B, S], from hidden states [B, S, D].

        A class "replaced" with score 0 is added to the V tokens. Equation 4 of SCRIPT is then
        p = 1 / (1 + sum of exp(scores)), the sigmoid of minus the log of that sum. Training takes
        `replaced_cross_entropy`, whose gradient does not keep the scores [B, S, V].
        """
        return -vocabulary_log_sum_exp(*self._factors(hidden))

    def replaced_cross_entropy(self, hidden, replaced, weights, training=False):
        """Computes the cross entropy of `replaced_logits`: Equation 6 of SCRIPT.

        Args:
            hidden: [B, S, D].
            replaced: float32 [B, S], 1 where a token was replaced.
            weights: float32 [B, S].

        Returns:
            The sum of weight * cross entropy, and `replaced_logits` (without gradient in training).
        """
        factors = self._factors(hidden, training)
        if training:
            loss, logits = log_sum_exp_cross_entropy(*factors, 1.0 - replaced, weights)
            return loss, -logits
        logits = -vocabulary_log_sum_exp(*factors)
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(replaced, logits)
        return tf.reduce_sum(weights * entropy), logits

    def _factors(self, hidden, training=False):
        """Returns the factors of the logits: states [B, S, E], word embeddings [V, E], bias [V]."""
        states = self.transformed(hidden, training)
        table = tf.cast(self.embeddings.word_embeddings, states.dtype)
        bias = tf.cast(self.output_bias, tf.float32)
        if self.pieces < table.shape[0]:
            table, bias = table[: self.pieces], bias[: self.pieces]
        return states, table, bias


class DiscriminatorHead(tf_keras.layers.Layer):
    """Predicts which tokens were replaced. Originally named `discriminator_predictions`.

    Shape: hidden [B, S, D] -> logits float32 [B, S].
    """

    def __init__(self, config: BackboneConfig, **kwargs):
        super().__init__(**kwargs)
        self.transform = dense(config, config.hidden_size, "dense", activation=config.hidden_act)
        glorot = {"kernel_initializer": "glorot_uniform", "use_bias": True}
        self.logit = dense(config, 1, "dense_1", **glorot)

    def call(self, hidden, training=False):
        transformed = self.transform(hidden, training=training)
        return tf.cast(tf.squeeze(self.logit(transformed), -1), tf.float32)


class TokenGroup(NamedTuple):
    """Tokens whose logits are computed together.

    Attributes:
        start: the first of their ids.
        end: the id after the last.
        table: [n, E_i]; rows after end - start represent other groups.
        bias: float32 [n].
        inputs: [..., E_i], the part of the transformed hidden states that the table multiplies.
    """

    start: int
    end: int
    table: tf.Tensor
    bias: tf.Tensor
    inputs: tf.Tensor


class CausalLMHead(_TiedHead):
    """Predicts the token after each token, with the transposed word embeddings.

    Dense D -> E, activation, layer norm, as in `MaskedLMHead`, then a softmax over the vocabulary.
    With cutoffs the softmax is adaptive (Grave et al. 2017): the head holds ids below the first
    cutoff and one entry for each group of rarer tokens; log p(token) = log p(group) +
    log p(token | group). Ids should be sorted by frequency. The i-th group, from 1, predicts from
    E / divisor^i channels and is tied to as many channels of its embeddings.

    Shape: hidden [..., D] -> log-probabilities float32 [..., V].

    Args:
        cutoffs: ascending ids at which groups end; empty: one softmax over all tokens.
        divisor: ratio of the widths of consecutive groups.
    """

    def __init__(
        self,
        config: BackboneConfig,
        embeddings: tf_keras.layers.Layer,
        *,
        cutoffs: Sequence[int] = (),
        divisor: int = 4,
        **kwargs,
    ):
        super().__init__(config, embeddings, **kwargs)
        E = embeddings.word_embeddings.shape[1]
        self.ends = [cutoff for cutoff in cutoffs if cutoff < self.pieces] + [self.pieces]
        self.widths = [max(1, E // divisor**i) for i in range(len(self.ends))]

    def build(self, input_shape):
        super().build(input_shape)
        E, tails, start = self.widths[0], len(self.ends) - 1, initializer(self.config)
        self.projections = []
        if not tails:
            return
        self.group_embeddings = self.add_weight("group_embeddings", [tails, E], initializer=start)
        self.group_bias = self.add_weight(
            "group_bias", [tails], initializer="zeros", experimental_autocast=False
        )
        self.projections = [
            self.add_weight(f"projection_{i + 1}", [E, width], initializer=initializer(self.config))
            for i, width in enumerate(self.widths[1:])
        ]

    def groups(self, transformed) -> list[TokenGroup]:
        """Returns the token groups, the head first, for [..., E] from `transformed`."""
        table = tf.cast(self.embeddings.word_embeddings, transformed.dtype)
        bias = tf.cast(self.output_bias, tf.float32)
        end = self.ends[0]
        first_table, first_bias = table[:end], bias[:end]
        if self.projections:
            others = tf.cast(self.group_embeddings, transformed.dtype)
            first_table = tf.concat([first_table, others], 0)
            first_bias = tf.concat([first_bias, tf.cast(self.group_bias, tf.float32)], 0)
        found = [TokenGroup(0, end, first_table, first_bias, transformed)]
        for projection, width, start, end in zip(
            self.projections, self.widths[1:], self.ends, self.ends[1:]
        ):
            inputs = tf.tensordot(transformed, tf.cast(projection, transformed.dtype), 1)
            found.append(TokenGroup(start, end, table[start:end, :width], bias[start:end], inputs))
        return found

    def call(self, hidden, training=False):
        first, *others = self.groups(self.transformed(hidden, training))
        of_first = _log_softmax(first)
        parts = [of_first[..., : first.end]]
        for i, group in enumerate(others):
            parts.append(of_first[..., first.end + i, None] + _log_softmax(group))
        return tf.concat(parts, -1)


def _log_softmax(group: TokenGroup) -> tf.Tensor:
    """Returns log-probabilities [..., n] within a group."""
    return tf.nn.log_softmax(vocabulary_logits(group.inputs, group.table, group.bias))

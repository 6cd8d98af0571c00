"""What is put on top of a causal encoder to predict the next token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from model.config import BackboneConfig
from model.kernels import vocabulary_logits
from model.layers import LayerNorm, dense, initializer


class TokenGroup(NamedTuple):
    """Tokens whose logits are computed together.

    Attributes:
        start: the first of their ids.
        end: the id after the last.
        table: [n, E_i], of which rows after end - start stand for other groups.
        bias: float32 [n].
        inputs: of the table: [..., E_i] of the head's transformed hidden states [..., E].
    """

    start: int
    end: int
    table: tf.Tensor
    bias: tf.Tensor
    inputs: tf.Tensor


class CausalLMHead(tf_keras.layers.Layer):
    """Predicts the token after each token, with the transposed word embeddings.

    Dense D -> E, activation, layer norm, as `MaskedLMHead`, then a softmax over the vocabulary.
    With cutoffs the softmax is adaptive (Grave et al. 2017): ids below the first cutoff are in the
    head, beside one entry for each group of rarer tokens, and log p(token) = log p(group) +
    log p(token | group). So ids should be in the order of frequency. The i-th group, from 1,
    predicts from E / divisor^i channels, and is tied to as many channels of its embeddings.

    Shape: hidden [..., D] -> log-probabilities float32 [..., V].

    Args:
        config: of the encoder below.
        embeddings: whose `word_embeddings` it shares, built.
        pieces: V, how many rows of the word embeddings are tokens; by default all.
        cutoffs: ascending ids, at which groups end; none: one softmax over all tokens.
        divisor: of the width from each group to the next.
    """

    def __init__(
        self,
        config: BackboneConfig,
        embeddings: tf_keras.layers.Layer,
        *,
        pieces: int | None = None,
        cutoffs: Sequence[int] = (),
        divisor: int = 4,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config, self.embeddings = config, embeddings
        rows, E = embeddings.word_embeddings.shape
        self.pieces = pieces or rows
        self.ends = [cutoff for cutoff in cutoffs if cutoff < self.pieces] + [self.pieces]
        self.widths = [max(1, E // divisor**i) for i in range(len(self.ends))]
        self.transform = dense(config, E, "dense", activation=config.hidden_act)
        self.norm = LayerNorm(epsilon=config.layer_norm_eps)

    def build(self, input_shape):
        rows, E = self.embeddings.word_embeddings.shape
        self.output_bias = self.add_weight("output_bias", [rows], initializer="zeros")
        self.projections = []
        if len(self.ends) == 1:
            return
        tails = len(self.ends) - 1
        start = initializer(self.config)
        self.group_embeddings = self.add_weight("group_embeddings", [tails, E], initializer=start)
        self.group_bias = self.add_weight("group_bias", [tails], initializer="zeros")
        self.projections = [
            self.add_weight(f"projection_{i + 1}", [E, width], initializer=initializer(self.config))
            for i, width in enumerate(self.widths[1:])
        ]

    def transformed(self, hidden, training=False):
        """What the groups predict from: [..., D] -> [..., E]."""
        return self.norm(self.transform(hidden, training=training))

    def groups(self, transformed) -> list[TokenGroup]:
        """The groups of tokens, the head first; of [..., E] from `transformed`."""
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
    """[..., n] of one group."""
    shape = tf.shape(group.inputs)
    flat = tf.reshape(group.inputs, [1, -1, group.table.shape[1]])
    logits = vocabulary_logits(flat, group.table, group.bias)
    logits = tf.reshape(logits, tf.concat([shape[:-1], [group.table.shape[0]]], 0))
    return tf.nn.log_softmax(logits)

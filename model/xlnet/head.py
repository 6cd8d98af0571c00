"""What is put on top of an XLNet to pre-train it."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.kernels import vocabulary_logits
from model.xlnet.attention import normal_initializer
from model.xlnet.config import XLNetConfig


class XLNetLMHead(tf_keras.layers.Layer):
    """Predicts tokens from the query stream: transposed word embeddings plus a bias, nothing else.

    It also has what the query stream begins as. So an encoder has no variable that only
    pre-training uses.

    Shape: queries [B, P, D] -> logits float32 [B, P, V]. Weights: `output_bias`, one for every row
    of the word embeddings, and `mask_embedding` [1, D].

    Args:
        config: of the encoder below.
        embeddings: whose `word_embeddings` it shares, built.
        pieces: V, how many rows of the word embeddings are pieces of the vocabulary. By default
            all.
    """

    def __init__(
        self,
        config: XLNetConfig,
        embeddings: tf_keras.layers.Layer,
        *,
        pieces: int | None = None,
        name: str = "lm_head",
    ):
        super().__init__(name=name)
        self.embeddings = embeddings
        rows, D = embeddings.word_embeddings.shape
        self.pieces = pieces or rows
        with tf.name_scope(name):
            self.output_bias = self.add_weight("output_bias", [rows], initializer="zeros")
            self.mask_embedding = self.add_weight(
                "mask_embedding", [1, D], initializer=normal_initializer(config)
            )

    def call(self, queries):
        table = tf.cast(self.embeddings.word_embeddings, queries.dtype)[: self.pieces]
        return vocabulary_logits(
            queries, table, tf.cast(self.output_bias, tf.float32)[: self.pieces]
        )

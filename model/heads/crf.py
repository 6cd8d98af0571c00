"""A conditional random field (CRF) over the words of a sentence, on top of an encoder."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from convbert.model.heads.linear_chain import ChainScores, negative_log_likelihood

_INITIAL_RANGE = 0.1  # uniform, for the chain's scores, as in pytorch-crf


class CrfHead(tf_keras.layers.Layer):
    """Predicts one of L tags for each word from its first piece, jointly for the sentence.

    The chain contains first pieces only: neither other pieces nor padding. Consecutive sequences of
    a batch that are windows of one sentence make one chain. Always computes in float32.

    Args:
        num_tags: L.
    """

    def __init__(self, num_tags: int):
        super().__init__(name="crf", dtype="float32")
        self.dense = tf_keras.layers.Dense(num_tags, name="dense", dtype="float32")
        L = num_tags

        def scores(name: str, *shape: int) -> tf.Variable:
            start = tf_keras.initializers.RandomUniform(-_INITIAL_RANGE, _INITIAL_RANGE)
            return self.add_weight(name, shape, initializer=start)

        self.chain = ChainScores(scores("start", L), scores("transitions", L, L), scores("end", L))

    def call(self, sequence):
        """Maps [B, S, D] to float32 [B, S, L]."""
        return self.dense(sequence)

    def scores(self) -> ChainScores:
        """Returns the scores of the chain as tensors."""
        return ChainScores(*map(tf.convert_to_tensor, self.chain))

    def loss_weights(self, batch):
        """Returns the number of words of each sequence, 0 for batch padding: float32 [B]."""
        return tf.reduce_sum(batch["tag_weight"], 1) * batch["weight"]

    def loss(self, output, batch, *, training, seed=None):
        """Returns the negative log-likelihood per word [B], to be weighted by `loss_weights`.

        Args:
            batch: tags int32, tag_weight float32 [B, S]; example, window int32 [B], the sentence of
                a sequence and the number of its window.
        """
        S = tf.shape(batch["tag_weight"])[1]
        first = batch["tag_weight"] > 0
        # The positions of first pieces in order, then those of the other tokens.
        places = tf.sort(tf.where(first, 0, S) + tf.range(S)) % S  # [B, S]
        lengths = tf.reduce_sum(tf.cast(first, tf.int32), 1)
        words = tf.gather(self(output.sequence), places, batch_dims=1)  # [B, W = S, L]
        tags = tf.gather(batch["tags"], places, batch_dims=1)
        follows = tf.roll(batch["window"], 1, 0) + 1 == batch["window"]
        same = tf.roll(batch["example"], 1, 0) == batch["example"]
        joined = follows & same & (batch["weight"] > 0)
        at_least_one = tf.maximum(lengths, 1)
        losses = negative_log_likelihood(words, tags, at_least_one, self.scores(), joined)
        return losses / tf.cast(at_least_one, tf.float32)

    def predict(self, output, batch):
        """Returns `emissions` float32 [B, S, L]; `linear_chain.viterbi` decodes whole sentences."""
        return {"emissions": self(output.sequence)}

    def constants(self) -> dict[str, np.ndarray]:
        """Returns the scores that decoding needs: `start` [L], `transitions` [L, L], `end` [L]."""
        return {name: value.numpy() for name, value in self.scores()._asdict().items()}

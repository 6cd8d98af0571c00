"""A conditional random field over the words of a sentence, on top of an encoder."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from convbert.model.heads.linear_chain import ChainScores, negative_log_likelihood

_INITIAL_RANGE = 0.1  # of the scores of the chain, uniform; pytorch-crf's


class CrfHead(tf_keras.layers.Layer):
    """One of L tags for every word, read off its first piece, chosen for the sentence as a whole.

    First pieces are gathered before the chain, which neither other pieces nor padding enter.
    Consecutive sequences of a batch that are the windows of one sentence make one chain. All is in
    float32 whatever the policy.

    Args:
        num_tags: L.
    """

    def __init__(self, num_tags: int):
        super().__init__(name="crf", dtype="float32")
        self.dense = tf_keras.layers.Dense(num_tags, name="dense", dtype="float32")
        L = num_tags
        shapes = {"start": [L], "transitions": [L, L], "end": [L]}
        initializer = tf_keras.initializers.RandomUniform
        self.chain = ChainScores(
            *(
                self.add_weight(
                    name=name, shape=shape, initializer=initializer(-_INITIAL_RANGE, _INITIAL_RANGE)
                )
                for name, shape in shapes.items()
            )
        )

    def call(self, sequence):
        """[B, S, D] -> float32 [B, S, L]."""
        return self.dense(sequence)

    def scores(self) -> ChainScores:
        """The scores of the chain as tensors."""
        return ChainScores(*map(tf.convert_to_tensor, self.chain))

    def loss_weights(self, batch):
        """The number of words of each sequence, 0 for those that fill the batch: float32 [B]."""
        return tf.reduce_sum(batch["tag_weight"], 1) * batch["weight"]

    def loss(self, output, batch, *, training, seed=None):
        """Negative log-likelihood for each word [B]; count it by `loss_weights`.

        Args:
            batch: tags int32, tag_weight float32 [B, S]; example, window int32 [B], which sentence
                a sequence is of, and which one of its windows.
        """
        S = tf.shape(batch["tag_weight"])[1]
        first = batch["tag_weight"] > 0
        # The places of first pieces in their order, then those of the other tokens.
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
        """`emissions` float32 [B, S, L]; `linear_chain.viterbi` decodes whole sentences."""
        return {"emissions": self(output.sequence)}

    def constants(self) -> dict[str, np.ndarray]:
        """Returns the scores that decoding needs: `start` [L], `transitions` [L, L], `end` [L]."""
        return {name: value.numpy() for name, value in self.scores()._asdict().items()}

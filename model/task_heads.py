"""What is put on top of an encoder to learn a task from labels.

Every head is called as `head.loss(sequence, batch, seed)`, which gives the losses of rows [B] or
tokens [B, S], as `head.loss_weights(batch)`, of the same shape, and as
`head.predict(sequence, batch)`. Spans have a file of their own: `model/span_head.py`.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.layers import dropout

HEAD_DROPOUT = 0.1  # of the pooled state, as in the original whatever the encoder's rates


class _PooledHead(tf_keras.layers.Layer):
    """A dense layer on the first token's hidden state."""

    def __init__(self, units: int, name: str):
        super().__init__(name=name)
        # In float32 whatever the policy: scores of half precision would be full of ties.
        self.dense = tf_keras.layers.Dense(units, name="dense", dtype="float32")

    def call(self, sequence, seed=None):
        """[B, S, D] -> float32 [B, units]; `seed` is for dropout."""
        return self.dense(dropout(sequence[:, 0], HEAD_DROPOUT, seed))

    def loss_weights(self, batch):
        """1 for rows, 0 for those that only fill the batch: float32 [B]."""
        return batch["weight"]


class ClassificationHead(_PooledHead):
    """One of L labels for the whole text, by softmax."""

    def __init__(self, num_labels: int):
        super().__init__(num_labels, "classification")

    def loss(self, sequence, batch, seed=None):
        """Cross entropy [B] with `label` int32 [B]."""
        logits = self(sequence, seed)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)

    def predict(self, sequence, batch):
        """`logits` float32 [B, L]."""
        return {"logits": self(sequence)}


class RegressionHead(_PooledHead):
    """A number for the whole text."""

    def __init__(self):
        super().__init__(1, "regression")

    def loss(self, sequence, batch, seed=None):
        """Squared error [B] against `label` float32 [B]."""
        return tf.square(self(sequence, seed)[:, 0] - batch["label"])

    def predict(self, sequence, batch):
        """`score` float32 [B]."""
        return {"score": self(sequence)[:, 0]}


class TaggingHead(tf_keras.layers.Layer):
    """One of L tags for every word, read off its first piece; without dropout of its own."""

    def __init__(self, num_tags: int):
        super().__init__(name="tagging")
        self.dense = tf_keras.layers.Dense(num_tags, name="dense", dtype="float32")

    def call(self, sequence):
        """[B, S, D] -> float32 [B, S, L]."""
        return self.dense(sequence)

    def loss_weights(self, batch):
        """1 for the first pieces of words, 0 for other pieces and padding: float32 [B, S]."""
        return batch["tag_weight"] * batch["weight"][:, None]

    def loss(self, sequence, batch, seed=None):
        """Cross entropy [B, S] with `tags` int32 [B, S]; count it by `loss_weights`."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["tags"], self(sequence))

    def predict(self, sequence, batch):
        """`tags` int32 [B, S]."""
        return {"tags": tf.argmax(self(sequence), axis=-1, output_type=tf.int32)}

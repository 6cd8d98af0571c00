"""Task heads on top of an encoder, trained from labels.

A head reads the encoder's `EncoderOutput`: `output.pooled` for a whole text and `output.sequence`
for its tokens. `head.loss(output, batch, training=..., seed=...)` returns the losses of sequences
[B], of groups of G of them [B / G] or of tokens [B, S], `head.loss_weights(batch)` their weights,
of the same shape, and `head.predict(output, batch)` the predictions. A head whose loss of a
sequence depends on the rest of its batch, as with in-batch negatives, has a true attribute
`reads_whole_batch`: then the batch is not cut. Spans have a file of their own,
`model/heads/span.py`.
"""

from __future__ import annotations

import functools

import tensorflow as tf
import tf_keras

from convbert.model.config import BackboneConfig
from convbert.model.kernels import split_seeds
from convbert.model.layers import dense, dropout

NO_OPTION = -1e9  # the logit of what cannot be chosen
HEAD_DROPOUT = 0.1  # of the pooled state, as in the original whatever the encoder's rates


class _PooledHead(tf_keras.layers.Layer):
    """A dense layer on the vector of a text, maybe after another one, D -> D with an activation.

    Where there is one, both are initialised as the backbone is. A backbone whose `config` has a
    `summary_layer` has one with tanh: XLNet's `summarize_sequence`.

    Args:
        form: "linear"; "dense", as transformers' `ConvBertClassificationHead` and
            `ElectraClassificationHead` are, with a dropout before each of the layers; or "pooler",
            as its BERT has it, with tanh and one dropout, as in XLNet.
    """

    def __init__(
        self,
        units: int,
        name: str,
        config: BackboneConfig | None = None,
        form: str = "linear",
    ):
        super().__init__(name=name)
        if form != "linear" and (config is None or config.summary_layer):
            raise ValueError(f"`form` should be linear for this backbone. Received: {form!r}")
        self.summary, kernel_initializer = None, tf_keras.initializers.GlorotUniform
        self._both_dropouts = form == "dense"
        if config is not None and (config.summary_layer or form != "linear"):
            deviation = config.initializer_range
            kernel_initializer = functools.partial(tf_keras.initializers.RandomNormal, 0, deviation)
            self.summary = dense(
                config,
                config.hidden_size,
                "summary",
                _dense_act(config) if form == "dense" else "tanh",
                kernel_initializer=kernel_initializer(),
                dtype="float32",
            )
        # In float32 whatever the policy: scores of half precision would be full of ties.
        self.dense = tf_keras.layers.Dense(
            units, kernel_initializer=kernel_initializer(), name="dense", dtype="float32"
        )

    def call(self, pooled, training=False, seed=None):
        """[B, D] -> float32 [B, units]; `seed`, int32 [2], is for dropout in training."""
        rate = HEAD_DROPOUT if training else 0.0
        if self._both_dropouts:
            first, seed = split_seeds(seed, 2) if training else (None, None)
            pooled = dropout(pooled, rate, first)
        if self.summary is not None:
            pooled = self.summary(pooled)
        return self.dense(dropout(pooled, rate, seed))

    def loss_weights(self, batch):
        """1 for sequences, 0 for those that only fill the batch: float32 [B]."""
        return batch["weight"]

    def predict(self, output, batch):
        """`logits` float32 [B, units]."""
        return {"logits": self(output.pooled)}


def _dense_act(config: BackboneConfig) -> str:
    """ELECTRA's is always GELU, ConvBERT's that of its layers."""
    return config.hidden_act if getattr(config, "token_mixer", "") == "mixed" else "gelu"


class ClassificationHead(_PooledHead):
    """One of L labels for the whole text, by softmax."""

    def __init__(self, num_labels: int, config: BackboneConfig | None = None, form: str = "linear"):
        super().__init__(num_labels, "classification", config, form)

    def loss(self, output, batch, *, training, seed=None):
        """Cross entropy [B] with `label` int32 [B]."""
        logits = self(output.pooled, training=training, seed=seed)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)


class MultiLabelHead(_PooledHead):
    """Any number of L labels for the whole text, by a sigmoid each."""

    def __init__(self, num_labels: int, config: BackboneConfig | None = None, form: str = "linear"):
        super().__init__(num_labels, "multi_label", config, form)

    def loss(self, output, batch, *, training, seed=None):
        """Mean binary cross entropy [B] of the labels, `label` float32 [B, L] of 0 and 1."""
        logits = self(output.pooled, training=training, seed=seed)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(batch["label"], logits)
        return tf.reduce_mean(losses, axis=-1)


class RegressionHead(_PooledHead):
    """A number for the whole text."""

    def __init__(self, config: BackboneConfig | None = None, form: str = "linear"):
        super().__init__(1, "regression", config, form)

    def loss(self, output, batch, *, training, seed=None):
        """Squared error [B] against `label` float32 [B]."""
        scores = self(output.pooled, training=training, seed=seed)[:, 0]
        return tf.square(scores - batch["label"])

    def predict(self, output, batch):
        """`score` float32 [B]."""
        return {"score": self(output.pooled)[:, 0]}


class MultipleChoiceHead(_PooledHead):
    """One of the options of an example, by softmax over the scores of its G sequences.

    Args:
        group_size: G. Of sequences that stand for no option `present` is 0.
    """

    def __init__(self, group_size: int, config: BackboneConfig | None = None):
        super().__init__(1, "multiple_choice", config)
        self.group_size = group_size

    def loss_weights(self, batch):
        """1 for examples, 0 for those that only fill the batch: float32 [B / G]."""
        return tf.reshape(batch["weight"], [-1, self.group_size])[:, 0]

    def loss(self, output, batch, *, training, seed=None):
        """Cross entropy [B / G] with `label` int32 [B], the option's place in its group."""
        scores = self(output.pooled, training=training, seed=seed)  # [B, 1]
        scores = tf.where(batch["present"][:, None] > 0, scores, NO_OPTION)
        logits = tf.reshape(scores, [-1, self.group_size])
        label = tf.reshape(batch["label"], [-1, self.group_size])[:, 0]
        return tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)

    def predict(self, output, batch):
        """`score` float32 [B], the logit of each option."""
        return {"score": self(output.pooled)[:, 0]}


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

    def loss(self, output, batch, *, training, seed=None):
        """Cross entropy [B, S] with `tags` int32 [B, S]; count it by `loss_weights`."""
        logits = self(output.sequence)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["tags"], logits)

    def predict(self, output, batch):
        """`tags` int32 [B, S]."""
        return {"tags": tf.argmax(self(output.sequence), axis=-1, output_type=tf.int32)}

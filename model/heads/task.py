"""Task heads on top of an encoder, trained on labels.

A head reads the encoder's `EncoderOutput`: `output.pooled` for a whole text and `output.sequence`
for its tokens. `head.loss(output, batch, training=..., seed=...)` returns the losses of sequences
[B], of groups of G sequences [B / G] or of tokens [B, S]; `head.loss_weights(batch)` returns their
weights in the same shape, and `head.predict(output, batch)` the predictions. If the loss of a
sequence depends on the rest of its batch, as with in-batch negatives, the head sets
`reads_whole_batch = True`, and the batch is not split. The span head is in `model/heads/span.py`.
"""

from __future__ import annotations

import functools

import tensorflow as tf
import tf_keras

from convbert.model.config import BackboneConfig
from convbert.model.kernels import split_seeds
from convbert.model.layers import dense, dropout

NO_OPTION = -1e9  # the logit of an option that does not exist
HEAD_DROPOUT = 0.1  # of the pooled state, as in the original, for all encoders


class _PooledHead(tf_keras.layers.Layer):
    """A dense layer on a text's vector, optionally after a layer D -> D with an activation.

    With such a layer, both are initialised as the backbone. A backbone whose `config` has a
    `summary_layer` gets one with tanh: XLNet's `summarize_sequence`.

    Args:
        form: "linear"; "dense", as in transformers' `ConvBertClassificationHead` and
            `ElectraClassificationHead`, with dropout before each layer; or "pooler", as in its
            BERT and in XLNet, with tanh and one dropout.
    """

    kind: str  # the layer's name

    def __init__(self, units: int = 1, config: BackboneConfig | None = None, form: str = "linear"):
        super().__init__(name=self.kind)
        self.summary, kernel_initializer = None, tf_keras.initializers.GlorotUniform
        self._both_dropouts = form == "dense"
        if config is not None and (config.summary_layer or form != "linear"):
            deviation, act = config.initializer_range, "tanh"
            if form == "dense":  # that of the layers for ConvBERT, GELU for ELECTRA
                act = config.hidden_act if getattr(config, "token_mixer", "") == "mixed" else "gelu"
            kernel_initializer = functools.partial(tf_keras.initializers.RandomNormal, 0, deviation)
            self.summary = dense(
                config,
                config.hidden_size,
                "summary",
                act,
                kernel_initializer=kernel_initializer(),
                dtype="float32",
            )
        # Always float32: scores of half precision would be full of ties.
        self.dense = tf_keras.layers.Dense(
            units, kernel_initializer=kernel_initializer(), name="dense", dtype="float32"
        )

    def call(self, pooled, training=False, seed=None):
        """Maps [B, D] to float32 [B, units]; `seed`, int32 [2], is for dropout in training."""
        rate = HEAD_DROPOUT if training else 0.0
        if self._both_dropouts:
            first, seed = split_seeds(seed, 2) if training else (None, None)
            pooled = dropout(pooled, rate, first)
        if self.summary is not None:
            pooled = self.summary(pooled)
        return self.dense(dropout(pooled, rate, seed))

    def loss_weights(self, batch):
        """Returns 1 for sequences, 0 for batch padding: float32 [B]."""
        return batch["weight"]

    def predict(self, output, batch):
        """Returns `logits` float32 [B, units]."""
        return {"logits": self(output.pooled)}


class ClassificationHead(_PooledHead):
    """Predicts one of L labels for the whole text, by softmax."""

    kind = "classification"

    def loss(self, output, batch, *, training, seed=None):
        """Returns the cross entropy [B] with `label` int32 [B]."""
        logits = self(output.pooled, training=training, seed=seed)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)


class MultiLabelHead(_PooledHead):
    """Predicts any number of L labels for the whole text, by a sigmoid for each."""

    kind = "multi_label"

    def loss(self, output, batch, *, training, seed=None):
        """Returns the mean binary cross entropy [B]; `label` is float32 [B, L] of 0 and 1."""
        logits = self(output.pooled, training=training, seed=seed)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(batch["label"], logits)
        return tf.reduce_mean(losses, axis=-1)


class _ScoreHead(_PooledHead):
    """Predicts one number for each sequence."""

    def predict(self, output, batch):
        """Returns `score` float32 [B]: a number, or the logit of an option or a candidate."""
        return {"score": self(output.pooled)[:, 0]}


class RegressionHead(_ScoreHead):
    """Predicts a number for the whole text."""

    kind = "regression"

    def loss(self, output, batch, *, training, seed=None):
        """Returns the squared error [B] against `label` float32 [B]."""
        scores = self(output.pooled, training=training, seed=seed)[:, 0]
        return tf.square(scores - batch["label"])


class MultipleChoiceHead(_ScoreHead):
    """Chooses one option of an example, by softmax over the scores of its G sequences.

    Args:
        group_size: G. `present` is 0 for sequences without an option.
    """

    kind = "multiple_choice"

    def __init__(self, group_size: int, config: BackboneConfig | None = None):
        super().__init__(1, config)
        self.group_size = group_size

    def loss_weights(self, batch):
        """Returns 1 for examples, 0 for batch padding: float32 [B / G]."""
        return tf.reshape(batch["weight"], [-1, self.group_size])[:, 0]

    def loss(self, output, batch, *, training, seed=None):
        """Returns the cross entropy [B / G]; `label` int32 [B] is the option's index in a group."""
        scores = self(output.pooled, training=training, seed=seed)  # [B, 1]
        scores = tf.where(batch["present"][:, None] > 0, scores, NO_OPTION)
        logits = tf.reshape(scores, [-1, self.group_size])
        label = tf.reshape(batch["label"], [-1, self.group_size])[:, 0]
        return tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)


class RerankingHead(_ScoreHead):
    """Scores candidates of queries, each in a sequence of its own with the query.

    The loss of a query reads all its candidates in the batch if `listwise`: with s_j the score of
    candidate j and y_j its relevance,

        loss = -sum_j y_j log(exp(s_j) / sum_k exp(s_k)) / sum_j y_j

    (ListNet's top-one loss, Cao et al. 2007, with shares of y). Otherwise it is the mean binary
    cross entropy of its candidates, relevant where y_j > 0.
    """

    kind = "reranking"

    def __init__(self, config: BackboneConfig | None = None, *, listwise: bool = True):
        super().__init__(1, config)
        self.listwise = listwise

    def loss_weights(self, batch):
        """Returns the share of a sequence in its query, or 1; 0 for batch padding: float32 [B]."""
        if not self.listwise:
            return batch["weight"]
        return batch["weight"] / tf.maximum(tf.reduce_sum(_of_query(batch), 1), 1.0)

    def loss(self, output, batch, *, training, seed=None):
        """Returns the loss of each sequence's query, or of itself [B]; `relevance` float32 [B]."""
        scores = self(output.pooled, training=training, seed=seed)[:, 0]
        relevance = batch["relevance"]
        if not self.listwise:
            label = tf.cast(relevance > 0.0, tf.float32)
            return tf.nn.sigmoid_cross_entropy_with_logits(label, scores)
        same = _of_query(batch)
        total = tf.reduce_logsumexp(tf.where(same > 0.0, scores, NO_OPTION), 1)
        shares = tf.math.divide_no_nan(relevance, tf.linalg.matvec(same, relevance))
        return total - tf.linalg.matvec(same, shares * scores)


def _of_query(batch) -> tf.Tensor:
    """Returns 1 where sequence j is of i's query and no batch padding: float32 [B, B].

    A query begins where `candidate` int32 [B] is 0, so a query that is there twice is two queries.
    """
    first = tf.cast(tf.equal(batch["candidate"], 0), tf.float32)
    query = tf.cumsum(first)
    return tf.cast(query[:, None] == query, tf.float32) * batch["weight"]


class TaggingHead(tf_keras.layers.Layer):
    """Predicts one of L tags for each word from its first piece; has no dropout of its own."""

    def __init__(self, num_tags: int):
        super().__init__(name="tagging")
        self.dense = tf_keras.layers.Dense(num_tags, name="dense", dtype="float32")

    def call(self, sequence):
        """Maps [B, S, D] to float32 [B, S, L]."""
        return self.dense(sequence)

    def loss_weights(self, batch):
        """Returns 1 for first pieces of words, 0 for other pieces and padding: float32 [B, S]."""
        return batch["tag_weight"] * batch["weight"][:, None]

    def loss(self, output, batch, *, training, seed=None):
        """Returns the cross entropy [B, S] with `tags` int32 [B, S], weighted by `loss_weights`."""
        logits = self(output.sequence)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["tags"], logits)

    def predict(self, output, batch):
        """Returns `tags` int32 [B, S]."""
        return {"tags": tf.argmax(self(output.sequence), axis=-1, output_type=tf.int32)}

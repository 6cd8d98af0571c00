"""The head of the kind `embedding`: text embeddings and their losses; it has no variables."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tf_keras

NO_CANDIDATE = -1e9  # the score of a text that is no candidate


class EmbeddingHead(tf_keras.layers.Layer):
    """Vectors of unit length, which learn from groups of G texts.

    A group is two texts that belong together, then one that does not if G is 3. In a batch of n
    groups, the first text a_i should be nearest to its second text p_i among all second and third
    texts c_j:

        loss_i = -log(exp(scale cos(a_i, p_i)) / sum_j exp(scale cos(a_i, c_j)))

    Texts equal to a_i or p_i, second texts of other groups whose first text is a_i, and groups that
    only fill up a batch, are left out of the sum. Source: MultipleNegativesRankingLoss of
    sentence-transformers; van den Oord et al. 2018.

    Args:
        scored: whether the cosine of two texts learns `label` float32 [B] instead, by its square
            error.
        pooling: "mean" of the hidden states of all tokens, or "pooled", see `EncoderOutput`.
        dimensions: lengths of shorter vectors whose losses are added.
    """

    def __init__(
        self,
        group_size: int,
        *,
        scored: bool = False,
        pooling: str = "mean",
        scale: float = 20.0,
        dimensions: Sequence[int] = (),
    ):
        super().__init__(name="embedding")
        self.group_size, self.scored, self.pooling = group_size, scored, pooling
        self.scale, self.dimensions = scale, tuple(dimensions)
        self.reads_whole_batch, self.gathers_batch = not scored, True

    def vectors(self, output, batch) -> tf.Tensor:
        """Returns the vectors of texts before normalisation, float32 [B, D]."""
        if self.pooling == "pooled":
            return tf.cast(output.pooled, tf.float32)
        mask = tf.expand_dims(tf.cast(batch["input_mask"], tf.float32), 2)  # for LiteRT
        total = tf.reduce_sum(tf.cast(output.sequence, tf.float32) * mask, 1)
        return total / tf.maximum(tf.reduce_sum(mask, 1), 1.0)

    def loss_weights(self, batch):
        """Returns 1 for groups, 0 for those that fill up a batch: float32 [B / G]."""
        return tf.reshape(batch["weight"], [-1, self.group_size])[:, 0]

    def loss(self, output, batch, *, training, seed=None):
        """Returns the losses of groups [B / G]; `text` int32 [B] numbers equal texts equally."""
        G, vectors = self.group_size, self.vectors(output, batch)
        groups = tf.reshape(vectors, [-1, G, vectors.shape[-1]])  # [n, G, D]
        losses = []
        for size in (*self.dimensions, vectors.shape[-1]):
            unit = tf.math.l2_normalize(groups[:, :, :size], -1)
            if self.scored:
                cosine = tf.reduce_sum(unit[:, 0] * unit[:, 1], -1)
                label = tf.reshape(batch["label"], [-1, G])[:, 0]
                losses.append(tf.square(cosine - label))
            else:
                losses.append(self._contrastive(unit, batch))
        return tf.add_n(losses)

    def _contrastive(self, unit, batch):
        """Returns the losses of this replica's groups, among the candidates of all replicas."""
        G, weights = self.group_size, self.loss_weights(batch)
        text = tf.reshape(batch["text"], [-1, G])  # [n, G]
        n = tf.shape(text)[0]
        # Seconds, then thirds, of n groups; m = (G - 1) n, of every replica.
        replica, candidates, texts, firsts, there = _gathered(
            tf.concat(tf.unstack(unit, axis=1)[1:], 0),  # [m, D]
            tf.concat(tf.unstack(text, axis=1)[1:], 0),  # [m]
            tf.concat([text[:, 0], *[-tf.ones_like(text[:, 0])] * (G - 2)], 0),  # [m]
            tf.tile(weights, [G - 1]),  # [m]
        )
        scores = self.scale * tf.matmul(unit[:, 0], candidates, transpose_b=True)  # [n, m]
        places = replica * n * (G - 1) + tf.range(n)  # of the own second texts
        own = tf.equal(places[:, None], tf.range(tf.shape(candidates)[0]))
        same = tf.equal(texts, text[:, :1]) | tf.equal(texts, text[:, 1:2])
        same |= tf.equal(firsts, text[:, :1])
        scores = tf.where(own | ((there > 0.0) & ~same), scores, NO_CANDIDATE)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(places, scores)

    def predict(self, output, batch):
        """Returns `embedding` float32 [B, D] of unit length."""
        return {"embedding": tf.math.l2_normalize(self.vectors(output, batch), -1)}


def _gathered(*tensors: tf.Tensor) -> tuple[int | tf.Tensor, ...]:
    """Returns this replica's number, and the rows of all replicas, in their order.

    Gradients flow back to each.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 0, *tensors
    return context.replica_id_in_sync_group, *(context.all_gather(x, 0) for x in tensors)

"""Texts as vectors: of every model, and all that a pre-trained encoder alone can give."""

from __future__ import annotations

import tensorflow as tf

from serving.network import Network
from serving.parts import InParts
from serving.signature import NUM_PIECES, PIECES, TEXT, TRUNCATED, Signature, Tensors

TOKEN_VECTORS = {
    "pooled": "float32 [B, D], the hidden state of [CLS]",
    "mean": "float32 [B, D], the mean of `tokens`, [CLS] and [SEP] among them",
    "tokens": "float32 [B, S, D], the last layer's hidden states; 0 at padding",
}


def embeddings(network: Network) -> Signature:
    """Vectors of single texts."""

    vectors_of = InParts(lambda part: vectors(network, part))

    def function(text):
        rows = network.layout.single(text)
        S = tf.shape(rows.features["input_ids"])[1]
        return {
            **vectors_of(rows.features, network.lengths(rows.features), {"tokens": S}),
            "pieces": network.layout.pieces(rows),
            "num_pieces": rows.lengths,
            "truncated": rows.truncated,
        }

    outputs = {**TOKEN_VECTORS, "pieces": PIECES, "num_pieces": NUM_PIECES, "truncated": TRUNCATED}
    return Signature("vectors of a text and of its word pieces", function, {"text": TEXT}, outputs)


def vectors(network: Network, features: Tensors) -> Tensors:
    """`pooled`, `mean` and `tokens` of rows."""
    mask = tf.cast(features["input_mask"], tf.float32)[..., None]  # [B, S, 1]
    output = network.encode(features)
    tokens, pooled = (tf.cast(part, tf.float32) for part in (output.sequence, output.pooled))
    total = tf.reduce_sum(tokens * mask, 1)
    mean = total / tf.maximum(tf.reduce_sum(mask, 1), 1.0)
    return {"pooled": pooled, "mean": mean, "tokens": tokens * mask}

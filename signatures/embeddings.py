"""Texts as vectors: of every model, and all that a pre-trained encoder alone can give."""

from __future__ import annotations

import tensorflow as tf

from signatures.network import Network
from signatures.parts import InParts
from signatures.signature import NUM_PIECES, PIECES, TEXT, TRUNCATED, Signature, Tensors
from signatures.tensors import Tensor

TOKEN_VECTORS = {
    "pooled": Tensor("float32", ("B", "D"), "the vector of the text, such as that of [CLS]"),
    "mean": Tensor("float32", ("B", "D"), "the mean of `tokens`, [CLS] and [SEP] among them"),
    "tokens": Tensor("float32", ("B", "S", "D"), "the last layer's hidden states; 0 at padding"),
}


def embeddings(network: Network) -> Signature:
    """Vectors of single texts."""

    vectors_of = InParts(lambda part: vectors(network, part))

    def function(text):
        sequences = network.layout.single(text)
        features = network.features(sequences.ids, sequences.segment_ids)
        S = tf.shape(features["input_ids"])[1]
        return {
            **vectors_of(features, network.lengths(features), {"tokens": S}),
            **network.pieces(sequences, features),
        }

    outputs = {**TOKEN_VECTORS, "pieces": PIECES, "num_pieces": NUM_PIECES, "truncated": TRUNCATED}
    return Signature("vectors of a text and of its word pieces", function, {"text": TEXT}, outputs)


def vectors(network: Network, features: Tensors) -> Tensors:
    """`pooled`, `mean` and `tokens` of sequences."""
    mask = tf.cast(features["input_mask"], tf.float32)[..., None]  # [B, S, 1]
    output = network.encode(features)
    tokens, pooled = (tf.cast(part, tf.float32) for part in (output.sequence, output.pooled))
    total = tf.reduce_sum(tokens * mask, 1)
    mean = total / tf.maximum(tf.reduce_sum(mask, 1), 1.0)
    return {"pooled": pooled, "mean": mean, "tokens": tokens * mask}

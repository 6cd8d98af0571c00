"""A backbone from outside of the project: every token beside the mean of the text, twice.

Its vector of a text is the mean of the tokens, not the first one's.
"""

import dataclasses

import tensorflow as tf
import tf_keras

import convbert.model.flops as count
from convbert.model import BackboneConfig, EncoderOutput, register_architecture
from convbert.model.kernels import dropout


@dataclasses.dataclass(frozen=True)
class BagConfig(BackboneConfig):
    """Word embeddings of the width of the dense layers that follow."""

    architecture = "bag"

    vocab_size: int = 100
    hidden_size: int = 16
    num_hidden_layers: int = 2
    max_position_embeddings: int = 64
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.0


@count.forward.register
def operations(config: BagConfig, length, dense_lookup):
    """Counts as `model.flops.forward` does, without the means."""
    D = config.hidden_size
    lookup = count.Flops(2 * D * config.vocab_size if dense_lookup else 0, count.DROPOUT * D)
    return lookup + count.linear(2 * D, D) * config.num_hidden_layers


class WordTable(tf_keras.layers.Layer):
    """word_embeddings [V, D]."""

    def __init__(self, config: BagConfig):
        super().__init__(name="embeddings")
        with tf.name_scope(self.name):
            self.word_embeddings = self.add_weight(
                "word_embeddings", [config.vocab_size, config.hidden_size], initializer="uniform"
            )


class Bag(tf_keras.layers.Layer):
    """A `model.Backbone`."""

    def __init__(self, config: BagConfig, embeddings=None, name="encoder"):
        super().__init__(name=name)
        self.config = config
        self.embeddings = embeddings or WordTable(config)
        self.blocks = [
            tf_keras.layers.Dense(config.hidden_size, "tanh", name=f"layer_{i}")
            for i in range(config.num_hidden_layers)
        ]

    @property
    def hidden_size(self):
        return self.config.hidden_size

    def layer_groups(self):
        return [part.trainable_variables for part in (self.embeddings, *self.blocks)]

    def call(self, features, training=False, seed=None):
        ids = features["input_ids"]
        mask = tf.cast(features.get("input_mask", tf.ones_like(ids)), tf.float32)[..., None]

        def mean(hidden):
            total = tf.reduce_sum(hidden * mask, 1, keepdims=True)
            return total / tf.maximum(tf.reduce_sum(mask, 1, keepdims=True), 1.0)

        hidden = tf.gather(tf.convert_to_tensor(self.embeddings.word_embeddings), ids)
        hidden = dropout(hidden, self.config.hidden_dropout_prob if training else 0.0, seed)
        for block in self.blocks:
            beside = tf.broadcast_to(mean(hidden), tf.shape(hidden))
            hidden = block(tf.concat([hidden, beside], -1))
        return EncoderOutput(hidden, mean(hidden)[:, 0])


register_architecture(BagConfig, Bag, sizes={"bag-tiny": BagConfig()})

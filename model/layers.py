"""The small parts every encoder is made of: dense layers, grouped linear, dropout, embeddings."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from errors import InputError
from model.config import EncoderConfig

LAYER_NORM_EPSILON = 1e-12  # of the original's contrib layer norm; not Keras' 1e-3


def initializer(config: EncoderConfig) -> tf_keras.initializers.Initializer:
    """BERT's truncated normal; a new object each time, since Keras ties what shares one."""
    return tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def dense(config: EncoderConfig, units: int, name: str, **kwargs) -> tf_keras.layers.Dense:
    """A dense layer with BERT's initialisation, unless another is given."""
    kwargs.setdefault("kernel_initializer", initializer(config))
    return tf_keras.layers.Dense(units, name=name, **kwargs)


def layer_norm(name: str = "LayerNorm") -> tf_keras.layers.LayerNormalization:
    """Layer normalisation over the last axis, computed in float32 whatever the policy."""
    return tf_keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, name=name)


def dropout(inputs: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Dropout as a pure function of its seed, so that a resumed run repeats itself.

    Args:
        inputs: a float tensor of any shape.
        rate: share of the elements set to zero.
        seed: int32 [2]; None means inference and returns the inputs.
    """
    if seed is None or rate == 0.0:
        return inputs
    # Whole random words, compared with the rate as a share of their range. Uniform floats would
    # make XLA change the result (it takes other bits of the same word), and bfloat16 ones have 128
    # values and would drop 13/128 of the elements where 1/10 is asked for.
    words = tf.random.stateless_uniform(tf.shape(inputs), seed, None, None, tf.int32)
    keep = words >= round(rate * 2**32) - 2**31
    return tf.where(keep, inputs / (1.0 - rate), tf.zeros([], inputs.dtype))


class GroupedDense(tf_keras.layers.Layer):
    """Grouped linear operator: the input is cut into G groups, each with a dense layer of its own.

    Equation 1 of the ConvBERT authors' response. The batch may be dynamic (the original's not).

    Shape: [B, S, in] -> [B, S, units]. Weights: kernel [G, in/G, units/G], bias [units].
    """

    def __init__(self, config: EncoderConfig, units: int, groups: int, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.units, self.groups = units, groups
        self.activation = tf_keras.activations.get(activation)
        self._initializer = initializer(config)

    def build(self, input_shape):
        width = input_shape[-1] // self.groups
        self.kernel = self.add_weight(
            "kernel", [self.groups, width, self.units // self.groups], initializer=self._initializer
        )
        self.bias = self.add_weight("bias", [self.units], initializer="zeros")

    def call(self, inputs):
        B, S = tf.shape(inputs)[0], tf.shape(inputs)[1]
        grouped = tf.reshape(inputs, [B, S, self.groups, self.kernel.shape[1]])  # [B, S, G, in/G]
        outputs = tf.einsum("bsgi,gio->bsgo", grouped, self.kernel)  # [B, S, G, units/G]
        return self.activation(tf.reshape(outputs, [B, S, self.units]) + self.bias)


class Embeddings(tf_keras.layers.Layer):
    """Sum of word, segment and position embeddings, normalised. `electra/embeddings`.

    Shape: input_ids, segment_ids int32 [B, S] -> [B, S, E].
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.norm = layer_norm()

    def build(self, input_shape):
        config, E = self.config, self.config.embedding_size

        def table(name: str, rows: int) -> tf.Variable:
            return self.add_weight(name, [rows, E], initializer=initializer(config))

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = table("position_embeddings", config.max_position_embeddings)

    def call(self, input_ids, segment_ids, seed=None):
        longest, length = self.config.max_position_embeddings, input_ids.shape[1]
        expected = f"sequences should be at most `max_position_embeddings` = {longest} tokens long."
        S = tf.shape(input_ids)[1]
        if length is None:  # XLA drops the assertion, and fails on the shapes below
            tf.debugging.assert_less_equal(S, longest, expected)
        elif length > longest:
            raise InputError(f"{expected} Received: {length}")
        embedded = (
            tf.gather(self.word_embeddings, input_ids)
            + tf.gather(self.token_type_embeddings, segment_ids)
            + self.position_embeddings[:S]
        )  # [B, S, E]
        return dropout(self.norm(embedded), self.config.hidden_dropout_prob, seed)

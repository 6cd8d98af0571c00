"""Building blocks of encoders: dense layers, grouped linear layers, norms, embeddings."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from convbert.common.errors import InputError
from convbert.model.config import BackboneConfig, EncoderConfig
from convbert.model.kernels import (
    activation_function,
    add_and_norm,
    dense_product,
    dropout,
    grouped_product,
    sizes,
)


def initializer(config: BackboneConfig) -> tf_keras.initializers.Initializer:
    """Returns BERT's truncated normal; a new object each time, as Keras ties layers that share."""
    return tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)


class Dense(tf_keras.layers.Dense):
    """Keras' dense layer as one product over all tokens with the bias and, in inference, GELU.

    Shape: [..., in] -> [..., units]. Weights: kernel [in, units], bias [units] or none.
    """

    def call(self, inputs, training=False):
        return dense_product(inputs, self.kernel, self.bias, self.activation, training)


def checked_length(end: int | tf.Tensor, config: BackboneConfig) -> int | tf.Tensor:
    """Returns the length of sequences; InputError if an encoder does not take so many tokens."""
    longest = config.max_position_embeddings
    expected = f"sequences should be at most `max_position_embeddings` = {longest} tokens long."
    if tf.is_tensor(end):  # XLA drops the assertion and fails on the shapes
        checked = tf.debugging.assert_less_equal(end, longest, expected)
        with tf.control_dependencies([checked]):  # otherwise what reads it may fail first
            return tf.identity(end)
    if end > longest:
        raise InputError(f"{expected} Received: {end}")
    return end


def dense(config: BackboneConfig, units: int, name: str, activation=None, **kwargs) -> Dense:
    """Makes a dense layer with BERT's initialisation, and bias as configured, unless given."""
    kwargs = {"kernel_initializer": initializer(config), "use_bias": config.use_bias, **kwargs}
    return Dense(units, activation=activation_function(activation), name=name, **kwargs)


class LayerNorm(tf_keras.layers.LayerNormalization):
    """Layer normalisation over the last axis, always computed in float32.

    With a residual, it normalises residual + dropout(inputs): the end of a block.
    """

    def __init__(
        self,
        name: str = "LayerNorm",
        epsilon: float = EncoderConfig.layer_norm_eps,
        center: bool = True,
    ):
        super().__init__(epsilon=epsilon, name=name, center=center)

    def call(self, inputs, residual=None, rate=0.0, training=False, seed=None):
        rate = rate if training else 0.0
        gamma = tf.convert_to_tensor(self.gamma)
        beta = tf.convert_to_tensor(self.beta) if self.center else tf.zeros_like(gamma)
        return add_and_norm(inputs, residual, gamma, beta, self.epsilon, rate, seed)


class GroupedDense(tf_keras.layers.Layer):
    """Grouped linear operator: splits the input into G groups, each with its own dense layer.

    Equation 1 of the ConvBERT authors' response. Unlike the original, allows a dynamic batch.

    Shape: [B, S, in] -> [B, S, units]. Weights: kernel [G, in/G, units/G], bias [units].
    """

    def __init__(self, config: EncoderConfig, units: int, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.units, self.groups = units, config.linear_groups
        self.activation = activation_function(activation)
        self._initializer = initializer(config)

    def build(self, input_shape):
        shape = [self.groups, input_shape[-1] // self.groups, self.units // self.groups]
        self.kernel = self.add_weight("kernel", shape, initializer=self._initializer)
        self.bias = self.add_weight("bias", [self.units], initializer="zeros")

    def call(self, inputs, training=False):
        return grouped_product(inputs, self.kernel, self.bias, self.activation, training)


def look_up(table: tf.Variable, ids: tf.Tensor, dtype: str) -> tf.Tensor:
    """Returns the rows of a table [V, E] at int32 [...] as [..., E] of a compute dtype.

    The table is a float32 variable without autocast, so gradients of equal ids are summed in
    float32.

    A gather from a variable makes TensorFlow copy it at every later read and assignment, in a step
    three times: for the tied output and for weight decay. A gather from a tensor of it does not.
    """
    return tf.cast(tf.gather(tf.convert_to_tensor(table), ids), dtype)


class Embeddings(tf_keras.layers.Layer):
    """Normalised sum of word, segment and position embeddings. Original: `electra/embeddings`.

    Shape: input_ids, segment_ids int32 [B, S] -> [B, S, E].
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.norm = LayerNorm(epsilon=config.layer_norm_eps)

    def build(self, input_shape):
        config = self.config

        def table(name: str, rows: int) -> tf.Variable:
            shape = [rows, config.embedding_size]
            start = initializer(config)
            return self.add_weight(name, shape, initializer=start, experimental_autocast=False)

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = table("position_embeddings", config.max_position_embeddings)

    def call(self, input_ids, segment_ids, training=False, seed=None, position=0):
        """Embeds tokens from `position` on, int or int32; or at positions int32 [B, S]."""
        dtype = self.compute_dtype
        if isinstance(position, int) or position.shape.rank == 0:
            end = checked_length(position + sizes(input_ids)[1], self.config)
            places = tf.cast(self.position_embeddings[position:end], dtype)
        else:
            checked_length(sizes(input_ids)[1], self.config)
            places = look_up(self.position_embeddings, position, dtype)
        words = look_up(self.word_embeddings, input_ids, dtype)
        embedded = words + look_up(self.token_type_embeddings, segment_ids, dtype) + places
        rate = self.config.hidden_dropout_prob if training else 0.0
        return dropout(self.norm(embedded), rate, seed)

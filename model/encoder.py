"""The encoder: embeddings, then layers of token mixing (token_mixing.py) and feed-forward blocks.

Axis letters: see token_mixing.py.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from convbert.model.backbone import EncoderOutput, last_token, packed_positions, run_layer
from convbert.model.config import EncoderConfig
from convbert.model.kernels import split_seeds
from convbert.model.layers import Embeddings, GroupedDense, LayerNorm, dense
from convbert.model.token_mixing import TokenMixer, attention_bias, packed_attention_bias


class EncoderLayer(tf_keras.layers.Layer):
    """One post-norm Transformer layer whose attention is a `TokenMixer`."""

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.rate = config.hidden_dropout_prob
        self.mixer = TokenMixer(config, name="mixer")
        self.mixer_output = dense(config, config.hidden_size, "mixer_output")
        self.mixer_norm = LayerNorm("mixer_norm", config.layer_norm_eps)
        inner = config.intermediate_size
        self.intermediate = _feed_forward(config, inner, "intermediate", config.hidden_act)
        self.output_dense = _feed_forward(config, config.hidden_size, "output_dense")
        self.output_norm = LayerNorm("output_norm", config.layer_norm_eps)

    def call(self, hidden, bias, padding_mask, training=False, seeds=(None,) * 3, cache=None):
        """Maps [B, S, D] to [B, S, D], attention probabilities and kernels; see `TokenMixer`.

        `seeds` are those of the three dropouts.
        """
        mixed, *about_mixing = self.mixer(hidden, bias, padding_mask, training, seeds[0], cache)
        mixed = self.mixer_output(mixed, training=training)
        mixed = self.mixer_norm(mixed, hidden, self.rate, training=training, seed=seeds[1])
        inner = self.intermediate(mixed, training=training)
        output = self.output_dense(inner, training=training)
        output = self.output_norm(output, mixed, self.rate, training=training, seed=seeds[2])
        return output, *about_mixing


def _feed_forward(config: EncoderConfig, units: int, name: str, activation=None):
    if config.linear_groups == 1:
        return dense(config, units, name, activation=activation)
    return GroupedDense(config, units, activation, name=name)


class Encoder(tf_keras.layers.Layer):
    """ConvBERT, ELECTRA, BERT or ALE, depending on the configuration.

    Example:
        encoder = Encoder(named_size("convbert-small"))
        output = encoder({"input_ids": ids, "input_mask": mask, "segment_ids": segments})
        output.sequence  # [B, S, 256]

    `embeddings` is an `Embeddings` layer to share (a generator shares its discriminator's).
    """

    def __init__(
        self, config: EncoderConfig, embeddings: Embeddings | None = None, name: str = "encoder"
    ):
        super().__init__(name=name)
        self.config, self.rematerialize = config, False
        self.embeddings = embeddings or Embeddings(config, name="embeddings")
        self.hidden_size = D = config.hidden_size
        self.embeddings_project = None
        if self.embeddings.config.embedding_size != D:
            # Glorot, the default, as in the original.
            self.embeddings_project = dense(
                config, D, "embeddings_project", kernel_initializer="glorot_uniform"
            )
        distinct = 1 if config.share_layers else config.num_hidden_layers
        self.encoder_layers = [EncoderLayer(config, name=f"layer_{i}") for i in range(distinct)]

    def layers_in_order(self) -> list[EncoderLayer]:
        """Returns the layers in order of use; a shared layer occurs several times."""
        return self.encoder_layers * (self.config.num_hidden_layers // len(self.encoder_layers))

    def layer_groups(self) -> list[list[tf.Variable]]:
        """Groups variables as `Backbone.layer_groups`; a shared layer counts as the top one."""
        bottom = self.embeddings.trainable_variables
        if self.embeddings_project is not None:
            bottom = bottom + self.embeddings_project.trainable_variables
        layers = [layer.trainable_variables for layer in self.encoder_layers]
        uses_below: list[list] = [[]] * (self.config.num_hidden_layers - len(layers))
        return [bottom, *uses_below, *layers]

    def embed(self, input_ids, segment_ids, training=False, seed=None, position=0):
        """Returns the first layer's input, [B, S, D]; for `position` see `Embeddings`."""
        embedded = self.embeddings(input_ids, segment_ids, training, seed, position)
        if self.embeddings_project is not None:
            embedded = self.embeddings_project(embedded, training=training)
        return embedded

    def call(
        self,
        features: dict[str, tf.Tensor],
        training: bool = False,
        seed: tf.Tensor | None = None,
        output_attentions: bool = False,
        output_kernels: bool = False,
    ) -> EncoderOutput:
        """Encodes a batch, see `Backbone`; `input_mask` defaults to 1, `segment_ids` to 0.

        Without a seed, dropout in training uses TensorFlow's global generator. Attention
        probabilities and predicted kernels of all layers are returned on request.
        """
        config, ids = self.config, features["input_ids"]
        mask = features.get("input_mask", tf.ones_like(ids))
        segments = features.get("segment_ids", tf.zeros_like(ids))
        count = 3 * config.num_hidden_layers + 1  # three per layer, one for the embeddings
        seeds = split_seeds(seed, count) if training else [None] * count
        sequence_ids = features.get("sequence_ids")
        if sequence_ids is None:
            embedded = self.embed(ids, segments, training, seeds[-1])  # [B, S, D]
            bias = attention_bias(mask, embedded.dtype, config.causal)
        else:
            assert config.packing_gap is not None  # such rows are rejected before
            position = packed_positions(sequence_ids)
            embedded = self.embed(ids, segments, training, seeds[-1], position)
            bias = packed_attention_bias(sequence_ids, embedded.dtype)
        padding = tf.expand_dims(tf.cast(mask, embedded.dtype), 2)  # LiteRT has no [..., None]
        padding_mask = padding if config.mask_padding else None
        recompute = training and self.rematerialize and not (output_attentions or output_kernels)
        options = {"bias": bias, "padding_mask": padding_mask, "training": training}
        hidden, hidden_states, probabilities, kernels = embedded, [], [], []
        for i, layer in enumerate(self.layers_in_order()):
            options["seeds"] = seeds[3 * i : 3 * i + 3]
            hidden, *mixing = run_layer(layer, hidden, rematerialized=recompute, **options)
            hidden_states.append(hidden)
            if output_attentions and mixing[0] is not None:
                probabilities.append(mixing[0])
            if output_kernels and mixing[1] is not None:
                kernels.append(mixing[1])
        pooled = hidden[:, 0] if config.summary_token == 0 else last_token(hidden, mask)
        of_layers = map(tuple, (hidden_states, probabilities, kernels))
        return EncoderOutput(hidden, pooled, embedded, *of_layers)

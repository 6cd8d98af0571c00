"""The encoder: embeddings, then layers of token mixing (token_mixing.py) and feed-forward.

Axis letters: B batch, S tokens, D hidden, N heads after the bottleneck, H head width, A = N · H, K
taps of a kernel, which means a convolution's here.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.backbone import EncoderOutput
from model.config import EncoderConfig
from model.kernels import sizes, split_seeds
from model.layers import Embeddings, GroupedDense, LayerNorm, dense
from model.token_mixing import TokenMixer, attention_bias


class EncoderLayer(tf_keras.layers.Layer):
    """One post-norm Transformer layer whose attention is a `TokenMixer`."""

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.rate = config.hidden_dropout_prob
        self.mixer = TokenMixer(config, name="mixer")
        self.mixer_output = dense(config, config.hidden_size, "mixer_output")
        self.mixer_norm = LayerNorm("mixer_norm", config.layer_norm_eps)
        self.intermediate = _feed_forward(
            config, config.intermediate_size, "intermediate", config.hidden_act
        )
        self.output_dense = _feed_forward(config, config.hidden_size, "output_dense")
        self.output_norm = LayerNorm("output_norm", config.layer_norm_eps)

    def call(self, hidden, bias, padding_mask, training=False, seeds=(None, None, None)):
        """[B, S, D] -> [B, S, D], attention probabilities, kernel logits; `seeds` for dropout."""
        mixed, *about_mixing = self.mixer(
            hidden, bias, padding_mask, training=training, seed=seeds[0]
        )
        return self.after_mixing(hidden, mixed, training, seeds), *about_mixing

    def after_mixing(self, hidden, mixed, training=False, seeds=(None, None, None)):
        """The rest of a layer, token by token: mixed tokens [B, S, A or 2A] -> [B, S, D]."""
        mixed = self.mixer_output(mixed, training=training)
        mixed = self.mixer_norm(mixed, hidden, self.rate, training=training, seed=seeds[1])
        inner = self.intermediate(mixed, training=training)
        output = self.output_dense(inner, training=training)
        return self.output_norm(output, mixed, self.rate, training=training, seed=seeds[2])


def _feed_forward(config: EncoderConfig, units: int, name: str, activation=None):
    if config.linear_groups == 1:
        return dense(config, units, name, activation=activation)
    return GroupedDense(config, units, config.linear_groups, activation=activation, name=name)


class Encoder(tf_keras.layers.Layer):
    """ConvBERT, ELECTRA, BERT or ALE, as its configuration says.

    Example:
        encoder = Encoder(named_size("convbert-small"))
        output = encoder({"input_ids": ids, "input_mask": mask, "segment_ids": segments})
        output.sequence  # [B, S, 256]

    Args:
        embeddings: an `Embeddings` layer to share (a generator shares the discriminator's).

    Attributes:
        rematerialize: whether training keeps only what goes into each layer, and computes the rest
            again for its gradient: less memory for a forward pass more.
    """

    def __init__(
        self, config: EncoderConfig, embeddings: Embeddings | None = None, name: str = "encoder"
    ):
        super().__init__(name=name)
        self.config, self.rematerialize = config, False
        self.embeddings = embeddings or Embeddings(config, name="embeddings")
        width = self.embeddings.config.embedding_size
        self.embeddings_project = None
        if width != config.hidden_size:
            # Glorot, as in the original, which sets no initializer here.
            self.embeddings_project = dense(
                config,
                config.hidden_size,
                "embeddings_project",
                kernel_initializer="glorot_uniform",
            )
        distinct = 1 if config.share_layers else config.num_hidden_layers
        self.encoder_layers = [EncoderLayer(config, name=f"layer_{i}") for i in range(distinct)]

    @property
    def hidden_size(self) -> int:
        """D."""
        return self.config.hidden_size

    def _layers(self) -> list[EncoderLayer]:
        """In the order of their use, in which a shared one occurs several times."""
        return self.encoder_layers * (self.config.num_hidden_layers // len(self.encoder_layers))

    def layer_groups(self) -> list[list[tf.Variable]]:
        """See Backbone.layer_groups. A layer that is used several times counts as the top one."""
        bottom = self.embeddings.trainable_variables
        if self.embeddings_project is not None:
            bottom = bottom + self.embeddings_project.trainable_variables
        layers = [layer.trainable_variables for layer in self.encoder_layers]
        uses_below = [[]] * (self.config.num_hidden_layers - len(layers))
        return [bottom, *uses_below, *layers]

    def call(
        self,
        features,
        training: bool = False,
        seed=None,
        output_attentions: bool = False,
        output_kernels: bool = False,
    ) -> EncoderOutput:
        """Encodes a batch.

        Args:
            features: `input_ids` int32 [B, S]; optionally `input_mask` (1 for tokens, 0 for
                padding; default all 1) and `segment_ids` (default all 0) of the same shape. B and S
                may be dynamic; S is at most `max_position_embeddings`.
            training: whether dropout is on.
            seed: int32 [2], or [3] for a part of a batch (see `kernels.dropout`); in training,
                dropout is a function of it. Without one, it is drawn from TensorFlow's global
                generator.
            output_attentions: whether to return the attention probabilities.
            output_kernels: whether to return the kernels of the dynamic convolutions.

        Returns:
            An EncoderOutput.
        """
        config = self.config
        ids = features["input_ids"]
        mask = features.get("input_mask", tf.ones_like(ids))
        count = 3 * config.num_hidden_layers + 1  # three dropouts a layer, one of the embeddings
        seeds = split_seeds(seed, count) if training else [None] * count

        segments = features.get("segment_ids", tf.zeros_like(ids))
        embedded = self.embeddings(ids, segments, training=training, seed=seeds[-1])  # [B, S, E]
        if self.embeddings_project is not None:
            embedded = self.embeddings_project(embedded, training=training)  # [B, S, D]
        bias = attention_bias(mask, embedded.dtype, config.causal)  # [B, 1, 1 or S, S]
        padding_mask = None
        if config.mask_padding:
            padding_mask = tf.expand_dims(tf.cast(mask, embedded.dtype), 2)  # [B, S, 1]

        wants_mixing = output_attentions or output_kernels
        rematerialize = training and self.rematerialize and not wants_mixing
        hidden, hidden_states, attention_probs, conv_kernels = embedded, [], [], []
        for i, layer in enumerate(self._layers()):
            run = _rematerialized(layer) if rematerialize else layer
            hidden, probabilities, kernel_logits = run(
                hidden, bias, padding_mask, training=training, seeds=seeds[3 * i : 3 * i + 3]
            )
            hidden_states.append(hidden)
            if output_attentions and probabilities is not None:
                attention_probs.append(probabilities)
            if output_kernels and kernel_logits is not None:
                conv_kernels.append(tf.nn.softmax(tf.cast(kernel_logits, tf.float32)))
        return EncoderOutput(
            hidden,
            self._pooled(hidden, mask),
            embedded,
            tuple(hidden_states),
            tuple(attention_probs),
            tuple(conv_kernels),
        )

    def _pooled(self, hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """The hidden states that stand for a text, [B, D]: the first, [CLS], or the last that is no
        padding; of a causal encoder's that alone saw all."""
        if self.config.summary_token == 0:
            return hidden[:, 0]
        last = tf.reduce_max(tf.range(sizes(mask)[1]) * mask, 1)
        return tf.gather(hidden, last, batch_dims=1)


def _rematerialized(layer):
    """A layer whose gradient computes it again, without attention probabilities and kernels."""

    def call(hidden, *others, **options):
        output = tf.recompute_grad(lambda hidden: layer(hidden, *others, **options)[0])
        return output(hidden), None, None

    return call


def build_encoder(
    config: EncoderConfig, embeddings: Embeddings | None = None, name: str = "encoder"
) -> Encoder:
    """An encoder whose variables exist already."""
    encoder = Encoder(config, embeddings, name)
    encoder({"input_ids": tf.zeros([1, 1], tf.int32)})
    return encoder

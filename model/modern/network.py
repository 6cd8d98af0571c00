"""The modern encoder: ModernBERT's block around a token mixer.

    h = LN(E[ids])
    a = h in layer 0, else LN(h)                      canon: a = a + conv(a)
    h = h + W_o mix(a)
    h = h + W_2 (gelu(x) * g),   [x; g] = W_1 LN(h)
    after the last layer: LN(h)

mix is attention with rotated queries and keys, over all tokens or over a window; or that beside
ConvBERT's span-based convolution ("mixed"; its query is not rotated for the convolution); or, in
place of windows, C * conv(B * x) with [B; C; x] = W a ("gated_convolution", LFM2's short
convolution, centred). Norms have no shift, products no bias; convolutions read 0 at padding.
Axis letters: see token_mixing.py. Source: `models/modernbert`, `models/lfm2` of transformers.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
import tf_keras

from convbert.common.backend import built_for_litert
from convbert.model.backbone import EncoderOutput, run_layer
from convbert.model.kernels import (
    activation_function,
    attend,
    attend_nearby,
    custom_gradient,
    depthwise_conv,
    dropout,
    fused,
    project,
    sizes,
    split_seeds,
    window_bias,
)
from convbert.model.layers import Dense, LayerNorm, checked_length, dense, initializer, look_up
from convbert.model.modern.config import ModernConfig
from convbert.model.token_mixing import TokenMixer, attention_bias, packed_attention_bias


class Rotation(NamedTuple):
    """cos and sin of the angles of every token, float32 [S, H / 2]."""

    cos: tf.Tensor
    sin: tf.Tensor


def rotation(S: int | tf.Tensor, H: int, theta: float) -> Rotation:
    """Returns the angles position * theta^(-2 k / H) of k = 0 ... H / 2 - 1 (RoPE)."""
    frequencies = theta ** (-tf.range(0, H, 2, dtype=tf.float32) / H)
    angles = tf.cast(tf.range(S), tf.float32)[:, None] * frequencies
    return Rotation(tf.cos(angles), tf.sin(angles))


def rotated(x: tf.Tensor, by: Rotation, num_heads: int) -> tf.Tensor:
    """Rotates the two halves of every head into each other: [B, S, N * H] -> [B, S, N * H].

    Computed in float32.
    """
    if built_for_litert():  # XNNPACK cannot reshape to sizes known only at run time
        halves = tf.split(x, 2 * num_heads, -1)
        turned = []
        for first, second in zip(halves[::2], halves[1::2]):
            turned += [first * by.cos - second * by.sin, second * by.cos + first * by.sin]
        return tf.concat(turned, -1)
    B, S, A = sizes(x)

    @custom_gradient
    def turn(x):
        def gradient(upstream):
            return _rotated(upstream, by.cos, -by.sin)  # back by the same angles

        return _rotated(x, by.cos, by.sin), gradient

    return tf.reshape(turn(tf.reshape(x, [B, S, num_heads, A // num_heads])), [B, S, A])


@fused
def _rotated(x, cos, sin):
    first, second = tf.split(tf.cast(x, tf.float32), 2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return tf.cast(tf.concat([first * cos - second * sin, second * cos + first * sin], -1), x.dtype)


def _output(config: ModernConfig, name: str) -> Dense:
    """Returns a projection back to the hidden states."""
    deviation = config.output_initializer_range
    start = tf_keras.initializers.TruncatedNormal(stddev=deviation)
    return dense(config, config.hidden_size, name, kernel_initializer=start)


class Depthwise(tf_keras.layers.Layer):
    """A centred convolution with a kernel per channel: [B, S, D] -> [B, S, D].

    Reads 0 where `padding_mask` [B, S, 1] is 0.
    """

    def __init__(self, taps: int, **kwargs):
        super().__init__(**kwargs)
        self.taps = taps

    def build(self, input_shape):
        start = tf_keras.initializers.TruncatedNormal(stddev=1 / self.taps)
        self.kernel = self.add_weight("kernel", [self.taps, input_shape[-1]], initializer=start)

    def call(self, inputs, padding_mask):
        return depthwise_conv(inputs * padding_mask, self.kernel)


class GatedConvolution(tf_keras.layers.Layer):
    """C * conv(B * x), [B; C; x] = W a: LFM2's short convolution. [B, S, D] -> [B, S, D]."""

    def __init__(self, config: ModernConfig, **kwargs):
        super().__init__(**kwargs)
        self.projection = dense(config, 3 * config.hidden_size, "projection")
        self.convolution = Depthwise(config.conv_kernel_size, name="convolution")

    def call(self, hidden, padding_mask, training=False):
        before, after, x = tf.split(self.projection(hidden, training=training), 3, -1)
        return after * self.convolution(before * x, padding_mask)


class RotaryMixer(TokenMixer):
    """Attention with rotated queries and keys, for "mixed" beside SDConv."""

    def call(self, hidden, bias, by, padding_mask, radius=None, training=False, seed=None):
        """Returns mixed tokens [B, S, A] or [B, S, 2A], probabilities and kernels, or None.

        With a `radius`, tokens attend to those at most so far away.
        """
        layers, N = (self.query, self.key, self.value, self.conv_value), self.config.num_heads
        q, k, v, v_conv = project(hidden, layers, training)
        rate = self.config.attention_probs_dropout_prob if training else 0.0
        turned = (rotated(x, by, N) for x in (q, k))
        if radius is None:
            context, probabilities = attend(*turned, v, N, bias, rate, seed)
        else:
            block, probabilities = self.config.attention_block, None
            context = attend_nearby(*turned, v, N, bias, radius, block, rate, seed, training)
        if self.convolution is None:
            return context, probabilities, None
        local, kernels = self.convolution(hidden, q, v_conv, padding_mask)
        return tf.concat([context, local], -1), probabilities, kernels


class ModernLayer(tf_keras.layers.Layer):
    """One pre-norm layer; `index` from 0."""

    def __init__(self, config: ModernConfig, index: int, **kwargs):
        super().__init__(**kwargs)
        self.rate, eps = config.hidden_dropout_prob, config.layer_norm_eps
        K = config.canon_kernel_size
        self.mixer_norm = LayerNorm("mixer_norm", eps, center=False) if index else None
        self.canon = Depthwise(K, name="canon") if K else None
        self.gated = config.token_mixer == "gated_convolution" and not config.is_global(index)
        kind: type = GatedConvolution if self.gated else RotaryMixer
        self.mixer = kind(config, name="mixer")
        self.mixer_output = _output(config, "mixer_output")
        self.feed_forward_norm = LayerNorm("feed_forward_norm", eps, center=False)
        self.activation = activation_function(config.hidden_act)
        self.intermediate = dense(config, 2 * config.intermediate_size, "intermediate")
        self.output_dense = _output(config, "output_dense")

    def call(self, hidden, bias, by, padding_mask, radius=None, training=False, seeds=(None,) * 2):
        """Maps [B, S, D] to [B, S, D], attention probabilities and kernels, or None."""
        normed = hidden
        if self.mixer_norm is not None:
            normed = self.mixer_norm(hidden, training=training)
        if self.canon is not None:
            normed += self.canon(normed, padding_mask)
        if self.gated:
            mixed, about = self.mixer(normed, padding_mask, training), (None, None)
        else:
            mixed, *about = self.mixer(normed, bias, by, padding_mask, radius, training, seeds[0])
        mixed = self.mixer_output(mixed, training=training)
        hidden += dropout(mixed, self.rate if training else 0.0, seeds[1])
        normed = self.feed_forward_norm(hidden, training=training)
        x, gate = tf.split(self.intermediate(normed, training=training), 2, -1)
        hidden += self.output_dense(self.activation(x) * gate, training=training)
        return hidden, *about


class WordEmbeddings(tf_keras.layers.Layer):
    """Normalised word embeddings: int32 [B, S] -> [B, S, E]."""

    def __init__(self, config: ModernConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.norm = LayerNorm("norm", config.layer_norm_eps, center=False)

    def build(self, input_shape):
        shape = [self.config.vocab_size, self.config.embedding_size]
        start = initializer(self.config)
        self.word_embeddings = self.add_weight(
            "word_embeddings", shape, initializer=start, experimental_autocast=False
        )

    def call(self, input_ids, training=False):
        words = look_up(self.word_embeddings, input_ids, self.compute_dtype)
        return self.norm(words, training=training)


class ModernEncoder(tf_keras.layers.Layer):
    """The modern encoder as a `model.backbone.Backbone`.

    Example:
        encoder = build_backbone(named_size("modern-base"))
        encoder({"input_ids": ids, "input_mask": mask}).sequence  # [B, S, 768]
    """

    def __init__(
        self, config: ModernConfig, embeddings: WordEmbeddings | None = None, name: str = "encoder"
    ):
        super().__init__(name=name)
        self.config, self.rematerialize, D = config, False, config.hidden_size
        self.hidden_size = D
        self.embeddings = embeddings or WordEmbeddings(config, name="embeddings")
        wider = self.embeddings.config.embedding_size != D
        self.embeddings_project = dense(config, D, "embeddings_project") if wider else None
        self.encoder_layers = [
            ModernLayer(config, i, name=f"layer_{i}") for i in range(config.num_hidden_layers)
        ]
        self.final_norm = LayerNorm("final_norm", config.layer_norm_eps, center=False)

    def layer_groups(self) -> list[list[tf.Variable]]:
        """Groups variables as `Backbone.layer_groups`; the last norm counts as the top layer's."""
        bottom = self.embeddings.trainable_variables
        if self.embeddings_project is not None:
            bottom = bottom + self.embeddings_project.trainable_variables
        *layers, top = [layer.trainable_variables for layer in self.encoder_layers]
        return [bottom, *layers, top + self.final_norm.trainable_variables]

    def call(
        self,
        features: dict[str, tf.Tensor],
        training: bool = False,
        seed: tf.Tensor | None = None,
        output_attentions: bool = False,
        output_kernels: bool = False,
    ) -> EncoderOutput:
        """Encodes a batch, see `Backbone`; `input_mask` defaults to 1."""
        config, ids = self.config, features["input_ids"]
        S = checked_length(sizes(ids)[1], config)
        mask = features.get("input_mask", tf.ones_like(ids))
        count = 2 * config.num_hidden_layers
        seeds = split_seeds(seed, count) if training else [None] * count
        embedded = self.embeddings(ids, training=training)
        if self.embeddings_project is not None:
            embedded = self.embeddings_project(embedded, training=training)
        sequence_ids = features.get("sequence_ids")
        if sequence_ids is None:
            bias = attention_bias(mask, embedded.dtype)  # [B, 1, 1, S]
        else:  # rotations depend on distances, so positions need not start again
            bias = packed_attention_bias(sequence_ids, embedded.dtype)  # [B, 1, S, S]
        of_global, of_local = (
            {"bias": bias, "by": rotation(S, config.head_size, theta)}
            for theta in (config.global_rope_theta, config.local_rope_theta)
        )
        radius = config.local_attention // 2
        if output_attentions or built_for_litert():
            of_local["bias"] += window_bias(S, radius, embedded.dtype)  # [B, 1, S, S]
        else:
            of_local["radius"] = radius
        padding_mask = tf.expand_dims(tf.cast(mask, embedded.dtype), 2)  # LiteRT: no [..., None]
        recompute = training and self.rematerialize and not (output_attentions or output_kernels)
        hidden, hidden_states, probabilities, kernels = embedded, [], [], []
        for i, layer in enumerate(self.encoder_layers):
            hidden, *mixing = run_layer(
                layer,
                hidden,
                rematerialized=recompute,
                **(of_global if config.is_global(i) else of_local),
                padding_mask=padding_mask,
                training=training,
                seeds=seeds[2 * i : 2 * i + 2],
            )
            hidden_states.append(hidden)
            if output_attentions and mixing[0] is not None:
                probabilities.append(mixing[0])
            if output_kernels and mixing[1] is not None:
                kernels.append(mixing[1])
        hidden_states[-1] = hidden = self.final_norm(hidden, training=training)
        of_layers = map(tuple, (hidden_states, probabilities, kernels))
        return EncoderOutput(hidden, hidden[:, 0], embedded, *of_layers)

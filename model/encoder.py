"""The encoder: embeddings, then layers of token mixing and feed-forward.

ConvBERT mixes tokens by self-attention beside a convolution (section 3 of the paper):

    Self-Attn(Q, K, V)        = softmax(Q Kᵀ / √H) V
    LConv(V, w, i)            = Σ_{j=1..k} w_j V_{i + j - (k + 1) / 2}
    SDConv(Q, K_s, V; W_f)_i  = LConv(V, softmax(W_f (Q ⊙ K_s)_i), i)
    Mixed-Attn                = Cat(Self-Attn(Q, K, V), SDConv(Q, K_s, V; W_f))

Q, K, V are projections of the hidden states X, K_s the span-aware key, a depthwise-separable
convolution of X. The paper's formula shares V; its authors' code, and so this one, projects it
twice, once for either half: V = X W_v for the attention, V = X W_c for the convolution (`value` and
`conv_attn_point` there). Axis letters: B batch, S tokens, D hidden, N heads after the bottleneck,
H head width, A = N · H, K taps of a kernel (the paper's k; beside Q and V, K is the key). "Kernel"
means a convolution's here.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.backbone import EncoderOutput
from model.config import EncoderConfig
from model.kernels import (
    affine,
    attention_probabilities,
    computed_after,
    depthwise_conv,
    join_heads,
    lightweight_conv,
    project,
    sizes,
    split_heads,
    split_seeds,
)
from model.layer_loop import layers_in_loop, runs_as_loop
from model.layers import Embeddings, GroupedDense, LayerNorm, dense, initializer

# Added to the scores of padding keys; the original's value, finite in bfloat16 too.
PADDING_SCORE = -10000.0


def attention_bias(input_mask: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """What is added to attention scores: [B, S] mask of 1 and 0 -> [B, 1, 1, S]."""
    return (1.0 - tf.cast(input_mask, dtype)[:, None, None, :]) * PADDING_SCORE


class SelfAttention(tf_keras.layers.Layer):
    """Multi-head scaled dot-product attention over N heads of width H."""

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.key = dense(config, config.mixer_size, "key")
        self.value = dense(config, config.mixer_size, "value")

    def call(self, q, k, v, bias, training=False, seed=None):
        """Self-Attn(Q, K, V) = softmax(Q Kᵀ / √H) V.

        Args:
            q, k, v: [B, S, A].
            bias: [B, 1, 1, S], added to the scores.
            training: whether dropout of the probabilities is on.
            seed: int32 [2] for dropout in training.

        Returns:
            The context [B, S, A] and the attention probabilities [B, N, S, S].
        """
        N, H = self.config.num_heads, self.config.head_size
        rate = self.config.attention_probs_dropout_prob if training else 0.0
        q, k, v = (split_heads(x, N) for x in (q * H**-0.5, k, v))  # [B, N, S, H]
        scores = tf.matmul(q, k, transpose_b=True)  # [B, N, S, S]
        probabilities = attention_probabilities(scores, bias, rate, seed)
        return join_heads(tf.matmul(probabilities, v)), probabilities


class SpanKey(tf_keras.layers.Layer):
    """The span-aware key K_s: a depthwise-separable convolution over K tokens.

    Original: `conv_attn_key`. Keras' SeparableConv1D computes the same, with a slower pointwise
    step.

    Shape: [B, S, D] -> [B, S, A]. Weights: depthwise_kernel [K, D, 1], pointwise_kernel [1, D, A],
    bias [A].
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def build(self, input_shape):
        K, D, A = self.config.conv_kernel_size, input_shape[-1], self.config.mixer_size
        self.depthwise_kernel = self.add_weight(
            "depthwise_kernel", [K, D, 1], initializer=_tap_initializer(K)
        )
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel", [1, D, A], initializer=initializer(self.config)
        )
        self.bias = self.add_weight("bias", [A], initializer="zeros")

    def call(self, hidden):
        spans = depthwise_conv(hidden, tf.squeeze(self.depthwise_kernel, 2))  # [B, S, D]
        return affine(spans, tf.squeeze(self.pointwise_kernel, 0), self.bias)


class Convolution(tf_keras.layers.Layer):
    """Mixes neighbouring tokens with a "static", "dynamic" or "span" kernel of K taps.

    - static: LConv(V, w, i) with learned w for every channel, the same at every token.
    - dynamic: LConv(V, softmax(W_f V_i), i), from the token alone (Wu et al. 2019).
    - span: SDConv, from the tokens around (ConvBERT).

    Variable names are the original's: `conv_attn_key` makes K_s, `conv_attn_kernel` is W_f and
    `conv_attn_point` makes V.
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        K, A = config.conv_kernel_size, config.mixer_size
        self.value = dense(config, A, "conv_attn_point")
        if config.convolution == "static":
            self.depthwise = tf_keras.layers.DepthwiseConv1D(
                K,
                padding="same",
                use_bias=False,
                depthwise_initializer=_tap_initializer(K),
                name="depthwise",
            )
        else:
            self.kernel = dense(config, config.num_heads * K, "conv_attn_kernel")
        if config.convolution == "span":
            self.span_key = SpanKey(config, name="conv_attn_key")

    def call(self, hidden, q, v, padding_mask):
        """SDConv(Q, K_s, V; W_f)_i = LConv(V, softmax(W_f (Q ⊙ K_s)_i), i).

        Args:
            hidden: X, [B, S, D].
            q: [B, S, A]; only the span kernel reads it.
            v: [B, S, A].
            padding_mask: [B, S, 1], 0 at padding; ones let padding in, as the original does.

        Returns:
            The mixed tokens [B, S, A] and the logits of their kernels [B, S, N, K], None for the
            static kernel.
        """
        v = v * padding_mask
        if self.config.convolution == "static":
            return self.depthwise(v), None
        if self.config.convolution == "dynamic":
            logits = self.kernel_logits(v)
        else:
            k_s = self.span_key(hidden * padding_mask)
            logits = self.kernel_logits(q * k_s)
        return lightweight_conv(v, logits), logits

    def kernel_logits(self, source):
        """W_f of [B, S, A], by head: [B, S, N, K]."""
        B, S, _ = sizes(source)
        shape = [B, S, self.config.num_heads, self.config.conv_kernel_size]
        return tf.reshape(self.kernel(source), shape)


def _tap_initializer(K: int) -> tf_keras.initializers.Initializer:
    return tf_keras.initializers.TruncatedNormal(stddev=1 / K)


class TokenMixer(tf_keras.layers.Layer):
    """`token_mixer`: "attention", "convolution", or "mixed", which concatenates the two.

    Both halves have A channels and share the query.
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        attends = config.token_mixer != "convolution"
        convolves = config.token_mixer != "attention"
        uses_query = attends or config.convolution == "span"
        self.query = dense(config, config.mixer_size, "query") if uses_query else None
        self.attention = SelfAttention(config, name="self_attention") if attends else None
        self.convolution = Convolution(config, name="convolution") if convolves else None

    def call(self, hidden, bias, padding_mask, training=False, seed=None):
        """Mixed-Attn = Cat(Self-Attn(Q, K, V), SDConv(Q, K_s, V; W_f)).

        Args:
            hidden: X, [B, S, D].
            bias: [B, 1, 1, S], added to the attention scores.
            padding_mask: [B, S, 1], for the convolution.
            training: whether dropout is on.
            seed: int32 [2] for dropout in training.

        Returns:
            The mixed tokens, [B, S, A] or for "mixed" [B, S, 2A]; the attention probabilities
            [B, N, S, S], None without attention; and the logits of the convolution's kernels
            [B, S, N, K], None where none are predicted.
        """
        q, k, v, v_conv = self._project(hidden, training)
        outputs, probabilities, logits = [], None, None
        if self.attention is not None:
            context, probabilities = self.attention(q, k, v, bias, training=training, seed=seed)
            outputs.append(context)
            if training:
                hidden = computed_after(hidden, context)
        if self.convolution is not None:
            local, logits = self.convolution(hidden, q, v_conv, padding_mask)
            outputs.append(local)
        return tf.concat(outputs, axis=-1), probabilities, logits

    def _project(self, hidden, training):
        """Q, K and V of the attention and V of the convolution, [B, S, A]; None where not used."""
        layers = [
            self.query,
            getattr(self.attention, "key", None),
            getattr(self.attention, "value", None),
            getattr(self.convolution, "value", None),
        ]
        return project(hidden, layers, training)


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
        mixed = self.mixer_output(mixed, training=training)
        mixed = self.mixer_norm(mixed, hidden, self.rate, training=training, seed=seeds[1])
        inner = self.intermediate(mixed, training=training)
        output = self.output_dense(inner, training=training)
        output = self.output_norm(output, mixed, self.rate, training=training, seed=seeds[2])
        return output, *about_mixing


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
        bias = attention_bias(mask, embedded.dtype)  # [B, 1, 1, S]
        padding_mask = tf.ones([1, 1, 1], embedded.dtype)  # lets padding in
        if config.mask_padding:
            padding_mask = tf.cast(mask, embedded.dtype)[:, :, None]  # [B, S, 1]

        layers, about_mixing = self._layers(), output_attentions or output_kernels
        if training and not about_mixing and runs_as_loop(layers, embedded):
            states = layers_in_loop(
                layers, embedded, bias, padding_mask, seeds[:-1], self.rematerialize
            )
            return EncoderOutput(states[-1], states[-1][:, 0], embedded, states)
        hidden, hidden_states, attention_probs, conv_kernels = embedded, [], [], []
        for i, layer in enumerate(layers):
            if training and self.rematerialize and not about_mixing:
                layer = _rematerialized(layer)
            hidden, probabilities, kernel_logits = layer(
                hidden, bias, padding_mask, training=training, seeds=seeds[3 * i : 3 * i + 3]
            )
            hidden_states.append(hidden)
            if output_attentions and probabilities is not None:
                attention_probs.append(probabilities)
            if output_kernels and kernel_logits is not None:
                conv_kernels.append(tf.nn.softmax(tf.cast(kernel_logits, tf.float32)))
        return EncoderOutput(
            hidden,
            hidden[:, 0],
            embedded,
            tuple(hidden_states),
            tuple(attention_probs),
            tuple(conv_kernels),
        )


def _rematerialized(layer: EncoderLayer):
    """An `EncoderLayer` whose gradient computes it again; what it says of mixing is left out."""

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

"""Token mixing: self-attention, the convolutions, and the two side by side.

ConvBERT mixes tokens by self-attention beside a convolution (section 3 of the paper):

    Self-Attn(Q, K, V)        = softmax(Q Kᵀ / √H) V
    LConv(V, w, i)            = Σ_{j=1..k} w_j V_{i + j - (k + 1) / 2}
    SDConv(Q, K_s, V; W_f)_i  = LConv(V, softmax(W_f (Q ⊙ K_s)_i), i)
    Mixed-Attn                = Cat(Self-Attn(Q, K, V), SDConv(Q, K_s, V; W_f))

Q, K, V are projections of the hidden states X; K_s is the span-aware key, a depthwise-separable
convolution of X. The paper's formula shares V; its authors' code, and this one, projects it once
for each half: V = X W_v for the attention, V = X W_c for the convolution (`value` and
`conv_attn_point` there). Axis letters: B batch, S tokens, D hidden, N heads after the bottleneck,
H head width, A = N · H, K taps of a kernel (the paper's k; next to Q and V, K is the key).
"Kernel" always means a convolution's kernel.

In a causal encoder a token is mixed only with those before it: attention is triangular, and
windows end at their token instead of being centred on it: LConv sums V_{i + j - k} over j.
The paper does not have this; see docs/deviations.md. When a text is generated token by token,
`model.generation.Cache` holds the states of earlier tokens.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from convbert.model.config import EncoderConfig
from convbert.model.kernels import (
    PADDING_SCORE,
    affine,
    attend,
    depthwise_conv,
    lightweight_conv,
    project,
    sizes,
)
from convbert.model.layers import dense, initializer


def attention_bias(
    input_mask: tf.Tensor, dtype: tf.DType, causal: bool = False, queries: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the bias of attention scores: padding mask [B, S] of 1 and 0 -> [B, 1, 1, S].

    With `causal`, [B, 1, S, S]: token i attends to tokens up to i; [B, 1, queries, S] for the last
    `queries` tokens. `packed_attention_bias` is that of several sequences in a row.
    """
    bias = (1.0 - tf.expand_dims(tf.expand_dims(tf.cast(input_mask, dtype), 1), 1)) * PADDING_SCORE
    if not causal:
        return bias
    position = tf.range(sizes(input_mask)[1])
    of_queries = position if queries is None else position[-queries:]
    later = tf.cast(position[None, :] > of_queries[:, None], dtype)  # [S, S]
    # Twice as much, so that padding before a text does not attend to the text.
    return bias + later * (2.0 * PADDING_SCORE)


def packed_attention_bias(sequence_ids: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns the bias [B, 1, S, S] with which tokens attend to those of their sequence only.

    `sequence_ids` [B, S] number the sequences of a row; the same number is one sequence.
    """
    numbers = tf.cast(sequence_ids, tf.float32)  # GPUs compare no integers of 32 bits
    apart = tf.not_equal(numbers[:, :, None], numbers[:, None, :])
    return tf.cast(apart[:, None], dtype) * PADDING_SCORE


class SpanKey(tf_keras.layers.Layer):
    """The span-aware key K_s: a depthwise-separable convolution over K tokens.

    Equivalent to Keras' SeparableConv1D, with a faster pointwise step.

    Shape: [B, S, D] -> [B, S, A]. Weights: depthwise_kernel [K, D, 1], pointwise_kernel [1, D, A],
    bias [A].
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def build(self, input_shape):
        config = self.config
        K, D, A = config.conv_kernel_size, input_shape[-1], config.mixer_size
        taps, points = _tap_initializer(K), initializer(config)
        self.depthwise_kernel = self.add_weight("depthwise_kernel", [K, D, 1], initializer=taps)
        self.pointwise_kernel = self.add_weight("pointwise_kernel", [1, D, A], initializer=points)
        self.bias = None
        if config.use_bias:
            self.bias = self.add_weight("bias", [A], initializer="zeros")

    def call(self, hidden, padding):
        spans = depthwise_conv(hidden, tf.squeeze(self.depthwise_kernel, 2), padding)  # [B, S, D]
        return affine(spans, tf.squeeze(self.pointwise_kernel, 0), self.bias)


class Convolution(tf_keras.layers.Layer):
    """Mixes neighbouring tokens with a "static", "dynamic" or "span" kernel of K taps.

    - static: LConv(V, w, i) with a learned w per channel, the same at every token.
    - dynamic: LConv(V, softmax(W_f V_i), i), predicted from the token only (Wu et al. 2019).
    - span: SDConv, predicted from a span (ConvBERT). `span_key` makes K_s, `kernel_logits` is W_f.
      `span_kernel` replaces Q ⊙ K_s by K_s or [Q; K_s].
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        if config.convolution != "static":
            taps = config.num_heads * config.conv_kernel_size
            self.kernel_logits = dense(config, taps, "conv_attn_kernel")
        if config.convolution == "span":
            self.span_key = SpanKey(config, name="conv_attn_key")

    def build(self, input_shape):
        if self.config.convolution == "static":
            K, A = self.config.conv_kernel_size, self.config.mixer_size
            taps = _tap_initializer(K)
            self.static_kernel = self.add_weight("depthwise_kernel", [K, A], initializer=taps)

    def call(self, hidden, q, v, padding_mask, cache=None):
        """SDConv(Q, K_s, V; W_f)_i = LConv(V, softmax(W_f (Q ⊙ K_s)_i), i).

        Args:
            hidden: X, [B, S, D]; only the span kernel reads it and q.
            q, v: [B, S, A]; q is None if the mixer has no query.
            padding_mask: [B, S, 1], 0 at padding; None includes padding, as the original does.
            cache: `model.generation.Cache` of the tokens before these, or None.

        Returns:
            The mixed tokens [B, S, A], and their kernels float32 [B, S, N, K] (None for "static").
        """
        N, K = self.config.num_heads, self.config.conv_kernel_size
        padding = "causal" if self.config.causal else "same"
        if padding_mask is not None:
            v, hidden = v * padding_mask, hidden * padding_mask
        source = v
        if cache is not None:
            padding, v = "valid", cache.extended("conv_values", v, K - 1)
        if self.config.convolution == "static":
            return depthwise_conv(v, self.static_kernel, padding), None
        if self.config.convolution == "span":
            if cache is not None:
                hidden = cache.extended("conv_inputs", hidden, K - 1)
            source = self.span_key(hidden, padding)
            if self.config.span_kernel == "product":
                source = q * source
            elif self.config.span_kernel == "concatenation":
                source = tf.concat([q, source], axis=-1)  # [B, S, 2A]
        logits = self.kernel_logits(source)
        by_head = tf.reshape(tf.cast(logits, tf.float32), [*sizes(logits)[:2], N, K])
        return lightweight_conv(v, logits, N, padding), tf.nn.softmax(by_head)


def _tap_initializer(K: int) -> tf_keras.initializers.Initializer:
    return tf_keras.initializers.TruncatedNormal(stddev=1 / K)


class TokenMixer(tf_keras.layers.Layer):
    """The `token_mixer`: "attention", "convolution" or "mixed", which shares the query."""

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config

        def projection(name: str, used: bool):
            return dense(config, config.mixer_size, name) if used else None

        self.query = projection("query", config.queries)
        self.key = projection("key", config.attends)
        self.value = projection("value", config.attends)
        self.conv_value = projection("conv_attn_point", config.convolves)
        self.convolution = Convolution(config, name="convolution") if config.convolves else None

    def build(self, input_shape):
        for layer in (self.query, self.key, self.value, self.conv_value):
            if layer is not None:
                with tf.name_scope(layer.name):
                    layer.build(input_shape)

    def call(self, hidden, bias, padding_mask, training=False, seed=None, cache=None):
        """Mixed-Attn = Cat(Self-Attn(Q, K, V), SDConv(Q, K_s, V; W_f)).

        Args:
            hidden: X, [B, S, D].
            bias: `attention_bias`, added to the attention scores.
            padding_mask: [B, S, 1] for the convolution, or None.
            training: whether dropout of the attention probabilities is on; `seed`, int32 [2].
            cache: `model.generation.Cache` of the tokens before these, or None.

        Returns:
            The mixed tokens, [B, S, A] or [B, S, 2A] for "mixed"; the attention probabilities
            [B, N, S, S] or None; the convolution's predicted kernels float32 [B, S, N, K] or None.
        """
        layers = (self.query, self.key, self.value, self.conv_value)
        q, k, v, v_conv = project(hidden, layers, training)  # [B, S, A]
        outputs, probabilities, kernels = [], None, None
        if self.key is not None:
            if cache is not None:
                k, v = cache.extended("keys", k), cache.extended("values", v)
            rate = self.config.attention_probs_dropout_prob if training else 0.0
            context, probabilities = attend(q, k, v, self.config.num_heads, bias, rate, seed)
            outputs.append(context)
        if self.convolution is not None:
            local, kernels = self.convolution(hidden, q, v_conv, padding_mask, cache)
            outputs.append(local)
        return tf.concat(outputs, axis=-1), probabilities, kernels

"""Token mixing: self-attention, the convolutions, and the two side by side.

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

In a causal encoder a token is mixed with those before it alone: attention is triangular, and
windows end at their token instead of having it in their middle: LConv sums V_{i + j - k} over j.
The paper does not have this; see docs/deviations.md.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from model.config import EncoderConfig
from model.kernels import (
    affine,
    attend,
    depthwise_conv,
    lightweight_conv,
    project,
    sizes,
)
from model.layers import dense, initializer

# Added to the scores of padding keys; the original's value, finite in bfloat16 too. Twice as much
# to those of later tokens, so that padding before a text attends to nothing after it either.
PADDING_SCORE = -10000.0


def attention_bias(input_mask: tf.Tensor, dtype: tf.DType, causal: bool = False) -> tf.Tensor:
    """What is added to attention scores: [B, S] mask of 1 and 0 -> [B, 1, 1, S].

    With `causal`, [B, 1, S, S]: what token i attends to is up to i.
    """
    bias = (1.0 - tf.expand_dims(tf.expand_dims(tf.cast(input_mask, dtype), 1), 1)) * PADDING_SCORE
    if not causal:
        return bias
    position = tf.range(sizes(input_mask)[1])
    later = tf.cast(position[None, :] > position[:, None], dtype)  # [S, S]
    return bias + later * (2.0 * PADDING_SCORE)


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
            bias: `attention_bias`, added to the scores.
            training: whether dropout of the probabilities is on.
            seed: int32 [2] for dropout in training.

        Returns:
            The context [B, S, A] and the attention probabilities [B, N, S, S].
        """
        rate = self.config.attention_probs_dropout_prob if training else 0.0
        return attend(q, k, v, self.config.num_heads, bias, rate, seed)


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
        spans = depthwise_conv(
            hidden, tf.squeeze(self.depthwise_kernel, 2), self.config.causal
        )  # [B, S, D]
        return affine(spans, tf.squeeze(self.pointwise_kernel, 0), self.bias)

    def of_spans(self, spans):
        """K_s of tokens whose K taps are at hand: [B, S, K, D] -> [B, S, A]."""
        taps = tf.cast(tf.squeeze(self.depthwise_kernel, 2), tf.float32)  # [K, D]
        summed = tf.reduce_sum(tf.cast(spans, tf.float32) * taps, 2)
        pointwise, bias = tf.squeeze(self.pointwise_kernel, 0), self.bias
        return affine(*(tf.cast(x, spans.dtype) for x in (summed, pointwise, bias)))


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
                padding="valid" if config.causal else "same",
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
            padding_mask: [B, S, 1], 0 at padding; None lets padding in, as the original does.

        Returns:
            The mixed tokens [B, S, A] and the logits of their kernels [B, S, N, K], None for the
            static kernel.
        """
        if padding_mask is not None:
            v, hidden = v * padding_mask, hidden * padding_mask
        if self.config.convolution == "static":
            if self.config.causal:
                v = tf.pad(v, [[0, 0], [self.config.conv_kernel_size - 1, 0], [0, 0]])
            return self.depthwise(v), None
        if self.config.convolution == "dynamic":
            logits = self.kernel(v)
        else:
            k_s = self.span_key(hidden)
            logits = self.kernel(q * k_s)
        mixed = lightweight_conv(v, logits, self.config.num_heads, self.config.causal)
        return mixed, self._by_head(logits)

    def kernel_logits(self, source):
        """W_f of [B, S, A], by head: [B, S, N, K]."""
        return self._by_head(self.kernel(source))

    def _by_head(self, logits):
        B, S, _ = sizes(logits)
        return tf.reshape(logits, [B, S, self.config.num_heads, self.config.conv_kernel_size])


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
            bias: `attention_bias`, added to the attention scores.
            padding_mask: [B, S, 1] for the convolution, or None.
            training: whether dropout is on.
            seed: int32 [2] for dropout in training.

        Returns:
            The mixed tokens, [B, S, A] or for "mixed" [B, S, 2A]; the attention probabilities
            [B, N, S, S], None without attention; and the logits of the convolution's kernels
            [B, S, N, K], None where none are predicted.
        """
        q, k, v, v_conv = self.project(hidden, training)
        outputs, probabilities, logits = [], None, None
        if self.attention is not None:
            context, probabilities = self.attention(q, k, v, bias, training=training, seed=seed)
            outputs.append(context)
        if self.convolution is not None:
            local, logits = self.convolution(hidden, q, v_conv, padding_mask)
            outputs.append(local)
        return tf.concat(outputs, axis=-1), probabilities, logits

    def project(self, hidden, training=False):
        """Q, K and V of the attention and V of the convolution, [B, S, A]; None where not used."""
        layers = [
            self.query,
            getattr(self.attention, "key", None),
            getattr(self.attention, "value", None),
            getattr(self.convolution, "value", None),
        ]
        return project(hidden, layers, training)

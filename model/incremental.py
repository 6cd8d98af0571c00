"""A causal encoder token by token: what later tokens need of earlier ones is kept, not computed
again.

That is, of every layer, the keys and values of the attention, and the last K - 1 inputs of the two
convolutions: of the span-aware key and of the values. The layers are the encoder's own.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from model.encoder import Encoder, EncoderLayer
from model.kernels import join_heads, sizes, split_heads
from model.token_mixing import Convolution, SelfAttention


class LayerState(NamedTuple):
    """What a layer keeps of the t tokens that it has seen; of parts that it lacks, of width 0.

    Attributes:
        keys, values: [B, N, t, H], of the attention.
        window: [B, K - 1, D], the last inputs of the span-aware key; 0 before the first token.
        conv_values: [B, K - 1, A], the last values of the convolution, likewise.
    """

    keys: tf.Tensor
    values: tf.Tensor
    window: tf.Tensor
    conv_values: tf.Tensor


State = tuple[LayerState, ...]


def empty_state(encoder: Encoder, batch_size: tf.Tensor) -> State:
    """The state of every layer before the first token."""
    config, B = encoder.config, batch_size
    heads, width = config.num_heads, config.head_size
    attends, convolves = config.token_mixer != "convolution", config.token_mixer != "attention"
    before = config.conv_kernel_size - 1
    keys = [B, heads, 0, width * attends]
    window = [B, before, config.hidden_size * (convolves and config.convolution == "span")]
    values = [B, before, config.mixer_size * convolves]
    zeros = [tf.zeros(shape, encoder.compute_dtype) for shape in (keys, keys, window, values)]
    return (LayerState(*zeros),) * config.num_hidden_layers


def state_shapes(state: State) -> State:
    """What stays of the shapes of a state while tokens are added, for `tf.while_loop`."""
    return tuple(
        LayerState(
            *[tf.TensorShape([None, x.shape[1], None, x.shape[3]]) for x in layer[:2]],
            *[tf.TensorShape([None, *x.shape[1:]]) for x in layer[2:]],
        )
        for layer in state
    )


def advance(
    encoder: Encoder, ids: tf.Tensor, position: tf.Tensor, state: State
) -> tuple[tf.Tensor, State]:
    """Encodes the next tokens of texts whose first tokens a state has seen.

    Args:
        encoder: causal, and built.
        ids: int32 [B, T], none of them padding; of segment 0.
        position: int32, t, how many tokens the state has seen. t + T is at most
            `max_position_embeddings`.
        state: of those.

    Returns:
        The last layer's hidden states [B, T, D], which are the encoder's for the whole texts, and
        the state with these tokens.
    """
    config, embeddings, dtype = encoder.config, encoder.embeddings, encoder.compute_dtype
    positions = position + tf.range(sizes(ids)[1])
    hidden = embeddings.norm(
        tf.cast(tf.gather(embeddings.word_embeddings, ids), dtype)
        + tf.cast(embeddings.token_type_embeddings[0], dtype)
        + tf.cast(tf.gather(embeddings.position_embeddings, positions), dtype)
    )
    if encoder.embeddings_project is not None:
        hidden = encoder.embeddings_project(hidden)
    states = []
    for i in range(config.num_hidden_layers):
        layer = encoder.encoder_layers[0 if config.share_layers else i]
        hidden, new = _layer(layer, hidden, state[i])
        states.append(new)
    return hidden, tuple(states)


def _layer(layer: EncoderLayer, hidden, state: LayerState):
    """`EncoderLayer` of new tokens [B, T, D]."""
    mixer, outputs = layer.mixer, []
    q, k, v, v_conv = mixer.project(hidden)
    keys, values, window, conv_values = state
    if mixer.attention is not None:
        context, keys, values = _attend(mixer.attention, q, k, v, keys, values)
        outputs.append(context)
    if mixer.convolution is not None:
        local, window, conv_values = _convolve(
            mixer.convolution, hidden, q, v_conv, window, conv_values
        )
        outputs.append(local)
    hidden = layer.after_mixing(hidden, tf.concat(outputs, -1))
    return hidden, LayerState(keys, values, window, conv_values)


def _attend(attention: SelfAttention, q, k, v, keys, values):
    """`SelfAttention` of new tokens [B, T, A] over all; the context, and the keys and values."""
    config, seen, T = attention.config, tf.shape(keys)[2], tf.shape(q)[1]
    q, k, v = (split_heads(x, config.num_heads) for x in (q * config.head_size**-0.5, k, v))
    keys, values = tf.concat([keys, k], 2), tf.concat([values, v], 2)  # [B, N, t + T, H]
    scores = tf.matmul(q, keys, transpose_b=True)  # [B, N, T, t + T]
    later = tf.range(seen + T)[None] > (seen + tf.range(T))[:, None]  # [T, t + T]
    scores = tf.where(later, scores.dtype.min, scores)
    return join_heads(tf.matmul(tf.nn.softmax(scores), values)), keys, values


def _convolve(convolution: Convolution, hidden, q, v, window, conv_values):
    """`Convolution` of new tokens [B, T, A]; the mixed tokens, and the new windows."""
    config, K = convolution.config, convolution.config.conv_kernel_size
    around, conv_values = _windows(tf.concat([conv_values, v], 1), K)  # [B, T, K, A]
    if config.convolution == "static":
        taps = tf.cast(convolution.depthwise.depthwise_kernel, v.dtype)
        return tf.reduce_sum(around * tf.reshape(taps, [K, -1]), 2), window, conv_values
    source = v
    if config.convolution == "span":
        spans, window = _windows(tf.concat([window, hidden], 1), K)  # [B, T, K, D]
        source = q * convolution.span_key.of_spans(spans)
    weights = tf.nn.softmax(tf.cast(convolution.kernel_logits(source), tf.float32))
    B, T, N, _ = sizes(weights)
    around = tf.reshape(around, [B, T, K, N, config.head_size])
    mixed = tf.einsum("btnk,btknh->btnh", weights, tf.cast(around, tf.float32))
    return tf.cast(tf.reshape(mixed, [B, T, config.mixer_size]), v.dtype), window, conv_values


def _windows(tokens, K):
    """[B, K - 1 + T, C] -> the K tokens up to each of the last T, [B, T, K, C]; the last K - 1."""
    T = sizes(tokens)[1] - (K - 1)
    if T is not None and not tf.is_tensor(T) and T == 1:
        windows = tokens[:, None]
    else:
        windows = tf.stack([tokens[:, k : k + T] for k in range(K)], 2)
    return windows, tokens[:, T:]

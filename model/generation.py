"""Generates continuations with a causal language model, one token at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from convbert.model.encoder import Encoder
from convbert.model.heads.pretraining import CausalLMHead
from convbert.model.kernels import hashed_uniform, sizes
from convbert.model.token_mixing import attention_bias

State = tuple[dict[str, tf.Tensor], ...]  # one per layer, see `Cache`


class Cache:
    """The key-value cache of a layer's `TokenMixer` for the t earlier tokens.

    Attributes:
        tensors: for attention, `keys` and `values` [B, t, A]; for the convolution, the last K - 1
            `conv_values` [B, K - 1, A], and with a span kernel `conv_inputs` [B, K - 1, D]; both
            are 0 before the first token.
    """

    def __init__(self, tensors: dict[str, tf.Tensor]):
        self.tensors = dict(tensors)

    def extended(self, name: str, new: tf.Tensor, keep: int | None = None) -> tf.Tensor:
        """Appends new tokens [B, T, C] and returns all; caches all or the last `keep`."""
        tokens = tf.concat([self.tensors[name], new], 1)
        first = 0 if keep is None else sizes(tokens)[1] - keep
        self.tensors[name] = tokens[:, first:]
        return tokens


def empty_state(encoder: Encoder, batch_size: tf.Tensor) -> State:
    """Returns the state before the first token."""
    config, before = encoder.config, encoder.config.conv_kernel_size - 1
    shapes: dict[str, tuple[int, int]] = {}
    if config.attends:
        shapes |= dict.fromkeys(("keys", "values"), (0, config.mixer_size))
    if config.convolves:
        shapes["conv_values"] = before, config.mixer_size
        if config.convolution == "span":
            shapes["conv_inputs"] = before, config.hidden_size
    dtype = encoder.compute_dtype
    state = {name: tf.zeros([batch_size, *shape], dtype) for name, shape in shapes.items()}
    return (state,) * config.num_hidden_layers


def advance(
    encoder: Encoder, ids: tf.Tensor, position: tf.Tensor, state: State
) -> tuple[tf.Tensor, State]:
    """Encodes the next tokens of texts, given the state after their earlier tokens.

    Args:
        encoder: a built causal encoder.
        ids: int32 [B, T], without padding, in segment 0.
        position: int32, t, the number of tokens in the state. t + T is at most
            `max_position_embeddings`.

    Returns:
        The last layer's hidden states [B, T, D], equal to the encoder's on whole texts, and the
        new state.
    """
    T = sizes(ids)[1]
    hidden = encoder.embed(ids, tf.zeros_like(ids), position=position)
    bias = attention_bias(tf.ones([1, position + T]), hidden.dtype, causal=True, queries=T)
    caches = [Cache(tensors) for tensors in state]
    for layer, cache in zip(encoder.layers_in_order(), caches, strict=True):
        hidden, *_ = layer(hidden, bias, None, cache=cache)
    return hidden, tuple(cache.tensors for cache in caches)


class Sampling(NamedTuple):
    """Sampling options for each of B texts.

    Attributes:
        num_tokens: int32 [B], the maximum number of tokens to add.
        temperature: float32 [B], finite, divides the logits; 0 takes the most probable token.
        top_k: int32 [B], number of most probable tokens to draw from; 0: all.
        seed: int32 [B]. A token is a function of the seed, its position and the text before it.
    """

    num_tokens: tf.Tensor
    temperature: tf.Tensor
    top_k: tf.Tensor
    seed: tf.Tensor


class Continuation(NamedTuple):
    """Texts and their continuations, padded to S tokens.

    Attributes:
        ids: int32 [B, S].
        log_probs: float32 [B, S], of the added tokens, over the whole vocabulary and at
            temperature 1; 0 elsewhere.
        lengths: int32 [B], of texts with continuations.
    """

    ids: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


class TextGenerator:
    """Generates continuations of texts.

    Args:
        encoder: a causal encoder.
        head: predicts the next token.
        end_id: the token that ends a text; it is not added.
        never: ids that are never drawn.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: CausalLMHead,
        end_id: int,
        never: tuple[int, ...] = (),
    ):
        self.encoder, self.head, self.end_id = encoder, head, end_id
        self._forbidden = tf.reduce_any(tf.one_hot(never or (-1,), head.pieces) > 0, 0)  # [V]

    def __call__(self, ids: tf.Tensor, lengths: tf.Tensor, sampling: Sampling) -> Continuation:
        """Continues texts.

        Texts may have different lengths. The shortest length is encoded at once for all; after
        that, each step takes a text's own token if it has one, and draws one otherwise.

        Args:
            ids: int32 [B, P], padded after the texts.
            lengths: int32 [B], of the texts, at least 1. B is at least 1.
            sampling: length + num_tokens is at most `max_position_embeddings`.
        """
        S = tf.reduce_max(lengths + sampling.num_tokens)
        S = tf.maximum(S, tf.shape(ids)[1])
        ids = tf.pad(ids, [[0, 0], [0, S - tf.shape(ids)[1]]])
        start = tf.reduce_min(lengths)
        state = empty_state(self.encoder, tf.shape(ids)[0])
        hidden, state = self._read(ids, tf.constant(0), start, state)
        ended = tf.zeros_like(lengths, tf.bool)

        def step(position, ids, log_probs, lengths, ended, hidden, state):
            predicted = self.head(hidden)  # [B, V]
            token = draw(tf.where(self._forbidden, -np.inf, predicted), position, sampling)
            own = position < own_lengths
            wanted = ~own & ~ended & (position < own_lengths + sampling.num_tokens)
            ended |= wanted & (token == self.end_id)
            added = wanted & ~ended
            chosen = tf.where(added, tf.gather(predicted, token, batch_dims=1), 0.0)
            token = tf.where(own, ids[:, position], tf.where(added, token, 0))
            here = tf.range(S) == position  # [S]
            ids = tf.where(here, token[:, None], ids)
            log_probs = tf.where(here, chosen[:, None], log_probs)
            lengths += tf.cast(added, tf.int32)
            hidden, state = self._read(ids, position, position + 1, state)
            return position + 1, ids, log_probs, lengths, ended, hidden, state

        def goes_on(position, ids, log_probs, lengths, ended, hidden, state):
            return tf.reduce_any(~ended & (position < own_lengths + sampling.num_tokens))

        own_lengths = lengths
        variables = (start, ids, tf.zeros(tf.shape(ids)), lengths, ended, hidden, state)
        shapes = [tf.TensorShape([None, *x.shape[1:]]) for x in variables[1:-1]]
        shapes[0] = shapes[1] = tf.TensorShape([None, None])
        grows = tf.nest.map_structure(lambda x: tf.TensorShape([None, None, x.shape[2]]), state)
        invariants = (start.shape, *shapes, grows)
        _, ids, log_probs, lengths, *_ = tf.while_loop(
            goes_on, step, variables, shape_invariants=invariants, parallel_iterations=1
        )
        return Continuation(ids, log_probs, lengths)

    def _read(self, ids, start, end, state: State):
        """Returns the hidden states [B, D] of the token before `end`, and the state after it."""
        hidden, state = advance(self.encoder, ids[:, start:end], start, state)
        return hidden[:, -1], state


def draw(logits: tf.Tensor, position: tf.Tensor, sampling: Sampling) -> tf.Tensor:
    """Draws tokens int32 [B] from logits float32 [B, V], never one of -inf; see `Sampling`."""

    def sampled():
        V = tf.shape(logits)[1]
        scaled = logits / tf.maximum(sampling.temperature, 1e-6)[:, None]
        scaled, order = tf.math.top_k(scaled, V)  # the most probable first
        shares = tf.nn.softmax(scaled)
        count = tf.where(sampling.top_k > 0, sampling.top_k, V)
        kept = (tf.range(V) < count[:, None]) & (shares > 0.0)
        cumulative = tf.cumsum(tf.where(kept, shares, 0.0), -1)  # [B, V]
        noise = hashed_uniform(sampling.seed, position)  # [B]
        above = cumulative <= noise[:, None] * cumulative[:, -1:]
        place = tf.reduce_sum(tf.cast(above & kept, tf.int32), -1)
        last = tf.reduce_sum(tf.cast(kept, tf.int32), -1) - 1  # rounding may go beyond it
        return tf.gather(order, tf.minimum(place, last), batch_dims=1)

    greedy = tf.argmax(logits, -1, output_type=tf.int32)
    always = tf.reduce_all(sampling.temperature <= 0.0)
    drawn = tf.cond(always, lambda: greedy, sampled)
    return tf.where(sampling.temperature <= 0.0, greedy, drawn)

"""Sampling for permutation language modelling: spans to predict, and factorization order.

The rules follow `_sample_mask` and `_local_perm` in data_utils.py of zihangdai/xlnet, which draws
when the data is built; here everything is a function of the step's seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from convbert.model.kernels import split_seeds
from convbert.training.randomness import uniform_for_batch

_NOISE_BITS, _ORDER_BITS = 24, 29


def permute_tokens(
    features: dict[str, tf.Tensor],
    hparams: Any,
    special_ids: dict[str, int],
    word_starts: tf.Tensor,
    seed: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Chooses the tokens to predict and a factorization order.

    Draws max(1, min(P, round(mask_prob * length))) tokens per example: spans, then single tokens.
    Drawn [CLS] and [SEP] are not predicted, as in the original.

    Args:
        features: `input_ids`, `input_mask`, `segment_ids`, int32 [B, S]; S is static.
        hparams: PretrainingHParams whose objective is `PermutationLMSettings`.
        special_ids: the ids `cls`, `sep`.
        word_starts: bool [V], True for tokens that begin a word.
        seed: int32 [2].

    Returns `features` with `target_positions`, `target_ids` int32 [B, P] and `target_weights`
    float32 [B, P], all 0 in unused slots; and `order`, `limit` int32 [B, S], for `permitted`.
    """
    settings = hparams.objective
    ids, mask = features["input_ids"], features["input_mask"]
    B, S = tf.shape(ids)[0], ids.shape[1]
    P = min(settings.max_predictions(hparams.max_seq_length), S)
    span_seed, token_seed, order_seed = split_seeds(seed, 3)
    real = mask > 0
    special = (ids == special_ids["cls"]) | (ids == special_ids["sep"])  # [B, S]
    lengths = tf.reduce_sum(mask, -1)
    wanted = tf.round(tf.cast(lengths, tf.float32) * settings.mask_prob)
    wanted = tf.clip_by_value(tf.cast(wanted, tf.int32), 1, P)  # [B]
    most_spans = -(-S // (settings.span_context + 1))  # each takes a token and its context
    spans = sample_spans(
        real & tf.gather(word_starts, ids),
        lengths,
        wanted,
        uniform_for_batch(span_seed, B, [most_spans, 2]),
        max_words=settings.max_span_words,
        context=settings.span_context,
        in_pieces=settings.spans_in_pieces,
    )
    noise = uniform_for_batch(token_seed, B, [S])
    score = tf.where(spans, 2.0, tf.where(real, noise, -1.0))
    score, positions = tf.math.top_k(score, P)  # spans first, then tokens at random
    used = tf.sequence_mask(wanted, P) & (score >= 0.0)
    used &= ~tf.gather(special, positions, batch_dims=1)  # [B, P]
    positions = tf.where(used, positions, 0)
    target = tf.reduce_any((positions[..., None] == tf.range(S)) & used[..., None], 1)  # [B, S]
    order, limit = factorization_order(
        target, special, uniform_for_batch(order_seed, B, [min(settings.perm_size or S, S)])
    )
    return {
        **features,
        "target_positions": positions,
        "target_ids": tf.where(used, tf.gather(ids, positions, batch_dims=1), 0),
        "target_weights": tf.cast(used, tf.float32),
        "order": order,
        "limit": limit,
    }


def sample_spans(
    starts: tf.Tensor,
    lengths: tf.Tensor,
    wanted: tf.Tensor,
    noise: tf.Tensor,
    *,
    max_words: int,
    context: int,
    in_pieces: bool = False,
) -> tf.Tensor:
    """Samples spans of n words, with probability in proportion to 1 / n, from left to right.

    A span is surrounded by context * n tokens that are not drawn. A uniform number of these, plus
    the tokens up to the next word, are on its left. The last span is cut at `wanted` tokens.

    Args:
        starts: bool [B, S], True where a word begins; False at padding.
        lengths: int32 [B], number of non-padding tokens. No span reaches the last one.
        wanted: int32 [B], maximum number of tokens to draw.
        noise: float32 [B, maximum number of spans, 2] in [0, 1).
        max_words: the largest n.
        context: tokens around a span, per word.
        in_pieces: whether a span has n tokens instead, as in the original, which tests at the
            span's end if its first token begins a word.
    """
    positions = tf.range(tf.shape(starts)[1])
    begun = tf.cumsum(tf.cast(starts, tf.int32), -1)  # words begun up to each position [B, S]
    cumulative = np.cumsum(1.0 / np.arange(1, max_words + 1))
    thresholds = tf.constant(cumulative[:-1] / cumulative[-1], tf.float32)

    def count(condition):
        return tf.reduce_sum(tf.cast(condition, tf.int32), -1)

    def span(number, current, left_to_draw, drawn):
        length_noise, context_noise = tf.unstack(noise[:, number], axis=-1)
        n = tf.minimum(1 + count(length_noise[:, None] >= thresholds), left_to_draw)  # [B]
        on_left = tf.cast(context_noise * tf.cast(context * n, tf.float32), tf.int32)
        before = count(starts & (positions < (current + on_left)[:, None]))  # words
        start = count(begun <= before[:, None])
        end = start + n if in_pieces else count(begun <= (before + n)[:, None])
        fits = (end < lengths) & (n > 0)
        end = tf.minimum(end, start + left_to_draw)
        inside = (positions >= start[:, None]) & (positions < end[:, None])
        drawn |= inside & fits[:, None]
        left_to_draw -= tf.where(fits, end - start, left_to_draw)  # else there are no more spans
        return number + 1, end + context * n - on_left, left_to_draw, drawn

    *_, drawn = tf.while_loop(
        lambda number, *_: number < noise.shape[1],
        span,
        (0, tf.zeros_like(lengths), wanted, tf.zeros_like(starts)),
        parallel_iterations=1,
    )
    return drawn


def factorization_order(
    target: tf.Tensor, special: tf.Tensor, noise: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Orders the tokens to predict, and [CLS] and [SEP], after all other tokens.

    Token i sees token j iff order[j] < limit[i]. All tokens see the other tokens, which see nothing
    else. Tokens to predict also see those before them; special tokens also see themselves.

    Args:
        target: bool [B, S], the tokens to predict.
        special: bool [B, S], [CLS] and [SEP].
        noise: float32 [B, n] in [0, 1), the order within consecutive windows of n tokens.

    Returns order, int32 [B, S], below 2 ** 29, -1 for tokens that all see; limit, int32 [B, S].
    """
    S, n = target.shape[1], noise.shape[1]
    windows = -(-S // n)
    scale = 2 ** min(_NOISE_BITS, _ORDER_BITS - windows.bit_length())
    shuffled = tf.tile(tf.cast(noise * scale, tf.int32), [1, windows])[:, :S]
    index = shuffled + tf.range(S) // n * scale
    order = tf.where(target | special, index, -1)
    return order, tf.where(target, order, order + 1)


def permitted(order: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Returns bool [B, S, S], True if token i sees token j, from `factorization_order`."""
    return order[:, None, :] < limit[:, :, None]

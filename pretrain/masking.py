"""Masking, dynamic or static, replacement of tokens, and metrics of replaced-token detection."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from convbert.model.kernels import hashed_uniform, mix_bits, split_seeds
from convbert.pretrain.vocabulary_softmax import sample_tokens, unnormalized_softmax
from convbert.training import metrics
from convbert.training.randomness import inverse_cdf, uniform_for_batch


def mask_tokens(
    features: dict[str, tf.Tensor], hparams: Any, special_ids: dict[str, int], seed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Chooses the tokens to predict and masks them.

    Draws max(1, min(P, round(mask_prob * length))) positions per example among the tokens other
    than [CLS], [SEP], [MASK] and padding. They are distinct unless `mask_with_replacement`. With
    `static_masks` n, an example gets one of n maskings, which depend on its ids only.

    Args:
        features: `input_ids`, `input_mask`, `segment_ids`, int32 [B, S], unmasked.
        hparams: PretrainingHParams whose objective has the fields of `MaskedLMSettings`.
        special_ids: the ids `cls`, `sep`, `mask`.
        seed: int32 [2].

    Returns `features` (original ids) with `masked_input_ids` int32 [B, S], `masked_lm_positions`
    and `masked_lm_ids` int32 [B, P], and `masked_lm_weights` float32 [B, P]; position, id and
    weight are 0 in unused slots.
    """
    ids, mask = features["input_ids"], features["input_mask"]
    masking, vocab_size = hparams.objective, hparams.vocab_size
    P = masking.max_predictions(hparams.max_seq_length)
    P = min(P, ids.shape[1] or P)
    position_noise, token_noise = _noises(ids, mask, masking.static_masks, seed)
    candidates = tf.cast(mask, tf.bool)
    for name in ("cls", "sep", "mask"):
        candidates &= ids != special_ids[name]
    candidates &= tf.range(tf.shape(ids)[1]) > 0  # also without [CLS], as 0 marks unused slots
    wanted = tf.round(tf.cast(tf.reduce_sum(mask, -1), tf.float32) * masking.mask_prob)
    wanted = tf.clip_by_value(tf.cast(wanted, tf.int32), 1, P)  # [B]
    if masking.mask_with_replacement:
        # Each uniformly over the candidates, as the original.
        positions = inverse_cdf(tf.cast(candidates, tf.float32)[:, None, :], position_noise([P]))
        available = tf.reduce_any(candidates, -1, keepdims=True)
    else:
        noise = tf.where(candidates, position_noise([tf.shape(ids)[1]]), -1.0)  # [B, S]
        noise, positions = tf.math.top_k(noise, P)  # [B, P]
        available = noise >= 0.0  # a short example may have too few candidates
    used = tf.sequence_mask(wanted, P) & available  # [B, P]
    positions = tf.where(used, positions, 0)
    chosen_ids = tf.where(used, tf.gather(ids, positions, batch_dims=1), 0)

    choice, token = tf.unstack(token_noise([P, 2]), axis=-1)  # [B, P]
    random_ids = tf.minimum(tf.cast(token * vocab_size, tf.int32), vocab_size - 1)
    to_mask = choice < masking.mask_token_prob
    to_random = ~to_mask & (choice < masking.mask_token_prob + masking.random_token_prob)
    shown = tf.where(to_mask, special_ids["mask"], random_ids)
    hidden = tf.where(to_mask | to_random, positions, 0)
    return {
        **features,
        "masked_input_ids": replace_tokens(ids, hidden, shown),
        "masked_lm_positions": positions,
        "masked_lm_ids": chosen_ids,
        "masked_lm_weights": tf.cast(used, tf.float32),
    }


def mask_and_draw(
    features: dict[str, tf.Tensor], hparams: Any, special_ids: dict[str, int], seed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Applies `mask_tokens` and adds `sampling_noise` float32 [B, P, 2], for drawing tokens."""
    mask_seed, sample_seed = split_seeds(seed, 2)
    batch = mask_tokens(features, hparams, special_ids, mask_seed)
    slots = hparams.objective.max_predictions(hparams.max_seq_length)
    uniform = uniform_for_batch(sample_seed, tf.shape(features["input_ids"])[0], [slots, 2])
    P = tf.shape(batch["masked_lm_positions"])[1]  # fewer if S is smaller
    return {**batch, "sampling_noise": uniform[:, :P]}


def draw_tokens(
    logits: tf.Tensor, softmax: tf.Tensor, batch: dict[str, tf.Tensor], temperature: float
) -> tf.Tensor:
    """Draws tokens for the masked positions from the predictions, int32 [B, P].

    `softmax` is the `unnormalized_softmax` of the logits; no gradient passes through the draw.
    """
    if temperature != 1.0:
        softmax = unnormalized_softmax(tf.stop_gradient(logits) / temperature)
    return sample_tokens(softmax, batch["sampling_noise"], logits.shape[-1])


def _noises(
    ids: tf.Tensor, mask: tf.Tensor, static_masks: int, seed: tf.Tensor
) -> Sequence[Callable[[list], tf.Tensor]]:
    """Returns two functions of a shape: noise [B, *shape] for positions, and for tokens."""
    seeds, B = split_seeds(seed, 2), tf.shape(ids)[0]
    dynamic = [functools.partial(uniform_for_batch, own, B) for own in seeds]
    if not static_masks:
        return dynamic
    copy = tf.cast(dynamic[0]([]) * static_masks, tf.int32)  # [B]
    return [functools.partial(_noise_of_example, ids, mask, 2 * copy + i) for i in range(2)]


def _noise_of_example(ids: tf.Tensor, mask: tf.Tensor, stream: tf.Tensor, shape: list) -> tf.Tensor:
    """Returns noise [B, *shape] in [0, 1), a function of ids [B, S] without padding and stream [B].

    A hash, as TensorFlow's stateless generators take one seed for a whole batch.
    """
    places = mix_bits(tf.cast(tf.range(1, 1 + tf.shape(ids)[1]), tf.uint32))  # 0 would stay 0
    tokens = mix_bits(tf.cast(ids, tf.uint32) + places) * tf.cast(mask, tf.uint32)
    key = tf.reduce_sum(tokens, -1) + tf.cast(stream, tf.uint32)  # [B]
    noise = hashed_uniform(tf.bitcast(key, tf.int32)[:, None], tf.range(tf.reduce_prod(shape)))
    return tf.reshape(noise, [-1, *shape])


def replace_tokens(ids: tf.Tensor, positions: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """Writes `updates` [B, P] into `ids` [B, S] at `positions` [B, P], except at position 0.

    If positions collide, writes the mean of the updates (rounded down), as the original does. This
    is a wrong token if the updates differ; it only happens with `mask_with_replacement`.
    """
    B, S, P = tf.shape(ids)[0], tf.shape(ids)[1], tf.shape(positions)[1]
    rows = tf.repeat(tf.range(B)[:, None], P, axis=1)  # [B, P]
    where = tf.stack([rows, positions], axis=-1)  # [B, P, 2]
    count = tf.scatter_nd(where, tf.ones_like(positions), [B, S])
    total = tf.scatter_nd(where, updates, [B, S])
    written = (count > 0) & (tf.range(S) > 0)
    return tf.where(written, total // tf.maximum(count, 1), ids)


def detection_metrics(
    logits: tf.Tensor, labels: tf.Tensor, mask: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the sums of the `disc_*` metrics of replaced tokens, with ELECTRA's names.

    Shape: logits of "was replaced" float32 [B, S]; labels (1 for replaced tokens) and mask, int32
    [B, S].
    """
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
    predictions = tf.cast(logits > 0, tf.int32)
    correct = predictions == labels
    return {
        "disc_loss": metrics.mean(entropy, mask),
        "disc_auc": metrics.auc(tf.sigmoid(logits), labels, mask),
        "disc_accuracy": metrics.mean(correct, mask),
        "disc_precision": metrics.mean(correct, predictions * mask),
        "disc_recall": metrics.mean(correct, labels * mask),
    }

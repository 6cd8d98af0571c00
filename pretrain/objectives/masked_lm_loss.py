"""Masked language modelling: its loss and networks. masked_lm.py has its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from model import EncoderConfig, MaskedLMHead, build_backbone
from pretrain.masking import mask_tokens
from pretrain.vocabulary_softmax import cross_entropy, most_likely, unnormalized_softmax
from training import metrics
from training.objective import Objective

if TYPE_CHECKING:
    from pretrain.hparams import PretrainingHParams


def masked_features(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The features of a prepared batch as an encoder is to see them: masked."""
    return {
        "input_ids": batch["masked_input_ids"],
        "input_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
    }


def masked_lm_loss(
    logits: tf.Tensor,
    softmax: tf.Tensor,
    batch: dict[str, tf.Tensor],
    normalizer: tf.Tensor,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Cross entropy of the masked tokens: sum(weight * nll) / (sum(weight) + 1e-6).

    Args:
        logits: float32 [B, P, V].
        softmax: `unnormalized_softmax(logits)`.
        batch: `masked_lm_ids`, `masked_lm_weights` [B, P].
        normalizer: sum of the weights over the global batch.

    Returns:
        The loss; the sums of `masked_lm_loss` and `masked_lm_accuracy`.
    """
    ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    nll = cross_entropy(logits, softmax, ids)  # [B, P]
    loss = tf.reduce_sum(nll * weights) / (normalizer + 1e-6)
    predictions = most_likely(logits)
    return loss, {
        "masked_lm_loss": metrics.mean(nll, weights),
        "masked_lm_accuracy": metrics.mean(predictions == ids, weights),
    }


class MaskedLM(Objective):
    """BERT's objective with dynamic masking: the encoder predicts the masked tokens.

    loss = masked_lm_loss
    """

    def __init__(self, hparams: PretrainingHParams, config: EncoderConfig, special_ids: dict):
        super().__init__(name="masked_lm")
        self.hparams, self.special_ids = hparams, special_ids
        self.encoder = build_backbone(config)
        self.head = MaskedLMHead(
            config,
            self.encoder.embeddings,
            pieces=hparams.vocab_size,
            activation=hparams.objective.masked_lm_act,
            name="generator_predictions",
        )
        self.head(tf.zeros([1, 1, config.hidden_size]), tf.zeros([1, 1], tf.int32))

    def prepare(self, features, seed):
        return mask_tokens(features, self.hparams, self.special_ids, seed)

    def normalizers(self, batch):
        return {"masked_lm": tf.reduce_sum(batch["masked_lm_weights"])}

    def loss(self, batch, normalizers, *, training, seed=None):
        encoded = self.encoder(masked_features(batch), training=training, seed=seed)
        logits = self.head(encoded.sequence, batch["masked_lm_positions"], training=training)
        softmax = unnormalized_softmax(logits)
        return masked_lm_loss(logits, softmax, batch, normalizers["masked_lm"])

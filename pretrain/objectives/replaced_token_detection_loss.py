"""Replaced-token detection: its loss and networks. replaced_token_detection.py has its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from model import DiscriminatorHead, EncoderConfig, MaskedLMHead, build_backbone
from pretrain.masking import mask_and_draw, replace_tokens
from pretrain.objectives.masked_lm_loss import masked_features, masked_lm_loss
from pretrain.vocabulary_softmax import sample_tokens, unnormalized_softmax
from training import metrics
from training.objective import Objective
from training.randomness import split_seed

if TYPE_CHECKING:
    from pretrain.hparams import PretrainingHParams


def detection_metrics(
    logits: tf.Tensor, labels: tf.Tensor, mask: tf.Tensor
) -> dict[str, tf.Tensor]:
    """The sums of the `disc_*` metrics of replaced tokens, under ELECTRA's names.

    Args:
        logits: of "was replaced", float32 [B, S].
        labels: int32 [B, S], 1 where a token was replaced.
        mask: int32 [B, S], 0 at padding.
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


class ReplacedTokenDetection(Objective):
    """A small generator fills in masked tokens; the encoder says of every token whether it did.

    loss = gen_weight * masked-LM loss + disc_weight * binary cross entropy over all tokens.
    No gradient passes through the sampled tokens. A sampled token equal to the original is labelled
    "original" (0).
    """

    def __init__(self, hparams: PretrainingHParams, config: EncoderConfig, special_ids: dict):
        super().__init__(name="replaced_token_detection")
        self.hparams, self.special_ids = hparams, special_ids
        self.encoder = build_backbone(config)
        self.head = DiscriminatorHead(config, name="discriminator_predictions")
        self.head(tf.zeros([1, 1, config.hidden_size]))
        self.generator = self.generator_head = None
        settings = hparams.objective
        if settings.uniform_generator:
            return
        if settings.untied_generator:
            shared = None if settings.untied_generator_embeddings else self.encoder.embeddings
            scaled = settings.generator_config(config)
            self.generator = build_backbone(scaled, shared, name="generator")
        else:
            self.generator = self.encoder
        scaled, embeddings = self.generator.config, self.generator.embeddings
        self.generator_head = MaskedLMHead(
            scaled,
            embeddings,
            pieces=hparams.vocab_size,
            activation=settings.masked_lm_act,
            name="generator_predictions",
        )
        self.generator_head(tf.zeros([1, 1, scaled.hidden_size]), tf.zeros([1, 1], tf.int32))

    def prepare(self, features, seed):
        return mask_and_draw(features, self.hparams, self.special_ids, seed)

    def normalizers(self, batch):
        return {
            "masked_lm": tf.reduce_sum(batch["masked_lm_weights"]),
            "disc": tf.cast(tf.reduce_sum(batch["input_mask"]), tf.float32),
        }

    def loss(self, batch, normalizers, *, training, seed=None):
        gen_seed, disc_seed = split_seed(seed, 2) if training else (None, None)
        settings = self.hparams.objective
        logits = self.generator_logits(batch, training=training, seed=gen_seed)
        softmax = unnormalized_softmax(logits)
        gen_loss, gen_sums = masked_lm_loss(logits, softmax, batch, normalizers["masked_lm"])
        sampled = self.sample(logits, softmax, batch)
        ids = replace_tokens(batch["input_ids"], batch["masked_lm_positions"], sampled)
        disc_loss, disc_sums = self.discriminator_loss(
            ids, batch, normalizers["disc"], training=training, seed=disc_seed
        )
        loss = settings.gen_weight * gen_loss + settings.disc_weight * disc_loss
        accuracy = metrics.mean(sampled == batch["masked_lm_ids"], batch["masked_lm_weights"])
        return loss, {**gen_sums, "sampled_masked_lm_accuracy": accuracy, **disc_sums}

    def generator_logits(self, batch, *, training=False, seed=None) -> tf.Tensor:
        """The generator's logits of the masked slots, float32 [B, P, V]."""
        if self.generator is None:
            B, P = tf.unstack(tf.shape(batch["masked_lm_positions"]))
            return tf.zeros([B, P, self.hparams.vocab_size])  # padding rows are never drawn
        encoded = self.generator(masked_features(batch), training=training, seed=seed)
        positions = batch["masked_lm_positions"]
        return self.generator_head(encoded.sequence, positions, training=training)

    def sample(self, logits, softmax, batch) -> tf.Tensor:
        """Replacement tokens drawn from the generator, int32 [B, P].

        `softmax` is the `unnormalized_softmax` of the logits, which serves as it is unless a
        temperature or `disallow_correct` changes the distribution.
        """
        settings, V = self.hparams.objective, logits.shape[-1]
        if settings.temperature != 1.0 or settings.disallow_correct:
            logits = tf.stop_gradient(logits) / settings.temperature
            if settings.disallow_correct:
                logits -= 1000.0 * tf.one_hot(batch["masked_lm_ids"], V)
            softmax = unnormalized_softmax(logits)
        return sample_tokens(softmax, batch["sampling_noise"], V)

    def discriminator_loss(self, corrupted_ids, batch, normalizer, *, training, seed=None):
        """Binary cross entropy of "was replaced", averaged over non-padding tokens.

        Args:
            corrupted_ids: int32 [B, S].
            batch: `input_ids` (the originals), `input_mask`, `segment_ids`.
            normalizer: number of non-padding tokens of the global batch.
            training: whether dropout is on.
            seed: int32 [2] for dropout in training.

        Returns:
            The loss and the sums of the `disc_*` metrics.
        """
        features = {**batch, "input_ids": corrupted_ids}
        encoded = self.encoder(features, training=training, seed=seed)
        logits = self.head(encoded.sequence, training=training)  # [B, S]
        labels = tf.cast(corrupted_ids != batch["input_ids"], tf.int32)
        mask = batch["input_mask"]
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
        loss = tf.reduce_sum(entropy * tf.cast(mask, tf.float32)) / (normalizer + 1e-6)
        return loss, detection_metrics(logits, labels, mask)

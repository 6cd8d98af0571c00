"""The self-critic, SCRIPT: its loss. self_critic.py has its settings."""

from __future__ import annotations

import tensorflow as tf

from pretrain.masking import mask_and_draw, replace_tokens
from pretrain.objectives.masked_lm_loss import MaskedLM, masked_features, masked_lm_loss
from pretrain.objectives.replaced_token_detection_loss import detection_metrics
from pretrain.vocabulary_softmax import sample_tokens, unnormalized_softmax
from training import metrics
from training.randomness import split_seed


class SelfCritic(MaskedLM):
    """The networks of a masked language model, which also tell of every token if it was replaced.

    loss = masked-LM loss + disc_weight * critic's loss, Equations 1 to 6 of SCRIPT. The first pass
    sees masked tokens and predicts them; the second sees tokens drawn from these predictions in
    their places, and the sum of its scores' exponentials says which are original. A sampled token
    equal to the original is. Both losses are means, over masked and over all tokens, as the weight
    of 50 is ELECTRA's. No gradient passes through the sampled tokens.
    """

    def prepare(self, features, seed):
        return mask_and_draw(features, self.hparams, self.special_ids, seed)

    def normalizers(self, batch):
        tokens = tf.cast(tf.reduce_sum(batch["input_mask"]), tf.float32)
        return {**super().normalizers(batch), "disc": tokens}

    def loss(self, batch, normalizers, *, training, seed=None):
        terms = self.losses(batch, normalizers, training=training, seed=seed)
        (masked, masked_sums), (critic, critic_sums) = terms
        return masked + critic, {**masked_sums, **critic_sums}

    def losses(self, batch, normalizers, *, training, seed=None):
        masked_seed, critic_seed = split_seed(seed, 2) if training else (None, None)
        encoded = self.encoder(masked_features(batch), training=training, seed=masked_seed)
        logits = self.head(encoded.sequence, batch["masked_lm_positions"], training=training)
        softmax = unnormalized_softmax(logits)
        loss, sums = masked_lm_loss(logits, softmax, batch, normalizers["masked_lm"])
        sampled = self.sample(logits, softmax, batch)
        accuracy = metrics.mean(sampled == batch["masked_lm_ids"], batch["masked_lm_weights"])
        yield loss, {**sums, "sampled_masked_lm_accuracy": accuracy}
        ids = replace_tokens(batch["input_ids"], batch["masked_lm_positions"], sampled)
        yield self.critic_loss(ids, batch, normalizers["disc"], training=training, seed=critic_seed)

    def sample(self, logits, softmax, batch) -> tf.Tensor:
        """Tokens in the masked places, int32 [B, P], as the predictions have them at random."""
        temperature = self.hparams.objective.temperature
        if temperature != 1.0:
            softmax = unnormalized_softmax(tf.stop_gradient(logits) / temperature)
        return sample_tokens(softmax, batch["sampling_noise"], logits.shape[-1])

    def critic_loss(self, ids, batch, normalizer, *, training, seed=None):
        """disc_weight times the cross entropy of "was replaced", a mean over non-padding tokens.

        Args:
            ids: int32 [B, S], with sampled tokens.
            batch: `input_ids` (the originals), `input_mask`, `segment_ids`.
            normalizer: number of non-padding tokens of the global batch.
            training: whether dropout is on.
            seed: int32 [2] for dropout in training.

        Returns:
            The loss and the sums of the `disc_*` metrics.
        """
        features = {**batch, "input_ids": ids}
        encoded = self.encoder(features, training=training, seed=seed)
        labels, mask = tf.cast(ids != batch["input_ids"], tf.int32), batch["input_mask"]
        weights = tf.cast(mask, tf.float32) * self.hparams.objective.disc_weight
        loss, logits = self.head.replaced_cross_entropy(
            encoded.sequence, tf.cast(labels, tf.float32), weights / (normalizer + 1e-6), training
        )
        return loss, detection_metrics(logits, labels, mask)

"""The self-critic, SCRIPT (Nijkamp et al. 2021): an encoder detects its own replacements."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import ClassVar

import tensorflow as tf

import convbert.model.flops as count
from convbert.common.settings import above, at_least
from convbert.model.kernels import split_seeds
from convbert.pretrain.masking import detection_metrics, mask_and_draw
from convbert.pretrain.objectives import base, masked_lm


def log_originality(features, encode, head) -> tf.Tensor:
    """Returns log p(t+ | x): one minus Equation 4 of SCRIPT, the log sigmoid of a log-sum-exp.

    The head reads only the scored tokens: float32 [n, S], 0 elsewhere.
    """
    places = tf.where(features["scored"] > 0)  # [T, 2]
    hidden = tf.gather_nd(encode(features).sequence, places)  # [T, D]
    replaced = head.replaced_logits(hidden[None])[0]  # [T]
    shape = tf.shape(features["scored"], tf.int64)
    return tf.scatter_nd(places, -tf.nn.softplus(replaced), shape)


# SCRIPT, Equation 7.
SELF_CRITIC = base.ScoringMethod("self_critic", ("encoder", "head"), log_originality)


@base.register
@dataclasses.dataclass(frozen=True)
class SelfCriticSettings(masked_lm.MaskedLMSettings):
    """Settings of the self-critic; masking as in the paper: 80 % [MASK], 10 % kept, 10 % random."""

    name: ClassVar = "self_critic"
    signatures: ClassVar = (base.REPLACED_TOKENS, base.MASKED_TOKENS)
    scoring_methods: ClassVar = (SELF_CRITIC, masked_lm.PSEUDO_LOG_LIKELIHOOD)
    bar: ClassVar = {"disc_auc": "AUC", "masked_lm_accuracy": "MLM accuracy"}

    mask_token_prob: float = 0.8
    random_token_prob: float = 0.1
    disc_weight: float = field(default=50.0, metadata=at_least(0))  # of the critic's loss, alpha
    # Temperature of the softmax that replacements are drawn from. 1 draws from the predictions, as
    # a hard Gumbel-softmax sample does at any tau (Equation 3; the paper does not give tau).
    temperature: float = field(default=1.0, metadata=above(0))

    def operations(self, encoder, max_seq_length, dense_lookup):
        """Counts the critic's scores at every position."""
        masked = super().operations(encoder, max_seq_length, dense_lookup)
        critic = count.forward(encoder, max_seq_length, dense_lookup)
        return masked + critic + count.masked_lm_head(encoder)

    def build(self, hparams, config, special_ids):
        return SelfCritic(hparams, config, special_ids)


class SelfCritic(masked_lm.MaskedLM):
    """A masked language model that also detects which tokens were replaced.

    loss = masked-LM loss + disc_weight * critic's loss, Equations 1 to 6 of SCRIPT. The first pass
    predicts masked tokens. The second pass reads tokens drawn from these predictions, and the sum
    of its scores' exponentials predicts which are original. A sampled token equal to the original
    counts as original. Both losses are means, over masked and over all tokens, as the weight of 50
    is ELECTRA's. No gradient passes through the sampled tokens.
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
        masked_seed, critic_seed = split_seeds(seed, 2) if training else (None, None)
        masked = masked_lm.masked_features(batch)
        encoded = self.encoder(masked, training=training, seed=masked_seed)
        logits = self.head(encoded.sequence, batch["masked_lm_positions"], training=training)
        temperature = self.hparams.objective.temperature
        loss, sums, ids = masked_lm.fill_in(logits, batch, normalizers["masked_lm"], temperature)
        yield loss, sums
        encoded = self.encoder({**batch, "input_ids": ids}, training=training, seed=critic_seed)
        labels, mask = tf.cast(ids != batch["input_ids"], tf.int32), batch["input_mask"]
        weights = tf.cast(mask, tf.float32) * self.hparams.objective.disc_weight
        weights /= normalizers["disc"] + 1e-6  # the tokens without padding of the global batch
        loss, logits = self.head.replaced_cross_entropy(
            encoded.sequence, tf.cast(labels, tf.float32), weights, training
        )
        yield loss, detection_metrics(logits, labels, mask)

"""The self-critic, SCRIPT: its settings. self_critic_loss.py computes it."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import model.operations as count
from plugins import lazily
from pretrain.objectives.masked_lm import MaskedLMSettings

_build = lazily("pretrain.objectives.self_critic_loss:SelfCritic")


@dataclasses.dataclass(frozen=True)
class SelfCriticSettings(MaskedLMSettings):
    """SCRIPT (Nijkamp et al. 2021): one encoder fills in masked tokens, and detects what it did.

    Masking is the paper's, 80 % [MASK], 10 % as it was, 10 % random.
    """

    name: ClassVar[str] = "self_critic"
    bar: ClassVar[dict[str, str]] = {"disc_auc": "AUC", "masked_lm_accuracy": "MLM accuracy"}
    curves: ClassVar[tuple[str, ...]] = (*MaskedLMSettings.curves, "disc_loss", "disc_auc")

    mask_token_prob: float = 0.8
    random_token_prob: float = 0.1
    disc_weight: float = 50.0  # weight of the critic's loss, the paper's alpha
    # Of the softmax that replacements are drawn from. 1 draws from the predictions themselves, as a
    # hard Gumbel-softmax sample does at every tau (of Equation 3, which the paper does not give).
    temperature: float = 1.0

    def check(self, encoder=None):
        super().check(encoder)
        self.require(self.temperature > 0, "temperature", "greater than 0")
        self.require(self.disc_weight >= 0, "disc_weight", "at least 0")

    def critic(self):
        return self.masked_lm()

    def operations(self, encoder, max_seq_length, dense_lookup):
        """See `ObjectiveSettings.operations`; the critic's pass needs scores at every position."""
        masked = super().operations(encoder, max_seq_length, dense_lookup)
        if masked is None:
            return None
        critic = count.forward(encoder, max_seq_length, dense_lookup) + count.masked_lm_head(
            encoder
        )
        return masked + critic

    def build(self, hparams, config, special_ids):
        return _build(hparams, config, special_ids)

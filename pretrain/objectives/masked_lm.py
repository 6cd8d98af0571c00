"""Masked language modelling: its settings. masked_lm_loss.py computes it."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import model.operations as count
from errors import warn
from model.config import ACTIVATIONS
from plugins import lazily
from pretrain.objectives.base import ObjectiveSettings

_build = lazily("pretrain.objectives.masked_lm_loss:MaskedLM")


@dataclasses.dataclass(frozen=True)
class MaskedLMSettings(ObjectiveSettings):
    """BERT's objective with dynamic masking, without next sentences."""

    name: ClassVar[str] = "masked_lm"
    network_fields: ClassVar[tuple[str, ...]] = ("masked_lm_act",)
    bar: ClassVar[dict[str, str]] = {"masked_lm_accuracy": "MLM accuracy"}
    curves: ClassVar[tuple[str, ...]] = ("masked_lm_loss", "masked_lm_accuracy")
    convertible: ClassVar[bool] = True

    mask_prob: float = 0.15  # share of the tokens that is predicted
    mask_token_prob: float = 0.85  # of those, share shown as [MASK] (BERT, SCRIPT: 0.8)
    random_token_prob: float = 0.0  # of those, share shown as a random token (BERT, SCRIPT: 0.1)
    mask_with_replacement: bool = False  # the original's colliding draws; see docs/deviations.md
    masked_lm_act: str | None = None  # activation of the masked-LM head; by default `hidden_act`

    def check(self, encoder=None):
        self.require(0 < self.mask_prob < 1, "mask_prob", "in (0, 1)")
        self.require(self.mask_token_prob >= 0, "mask_token_prob", "at least 0")
        self.require(
            0 <= self.random_token_prob <= 1 - self.mask_token_prob + 1e-9,
            "random_token_prob",
            f"at least 0 and at most 1 - mask_token_prob ({1 - self.mask_token_prob:g})",
        )
        act, known = self.masked_lm_act, ", ".join(ACTIVATIONS)
        self.require(act is None or act in ACTIVATIONS, "masked_lm_act", f"null or one of {known}")
        if getattr(encoder, "causal", False):
            warn(
                f"objective {self.name}: `causal` is true, so masked tokens are predicted from"
                " those before them alone; set it to false, or take the objective causal_lm"
            )

    def max_predictions(self, max_seq_length: int) -> int:
        """P, masked slots per sequence."""
        return max(1, int((self.mask_prob + 0.005) * max_seq_length))

    def masked_lm(self):
        return "encoder", "head"

    def carried_networks(self, before, encoder, stored):
        """See `ObjectiveSettings.carried_networks`; a masked LM and a self-critic have one head."""
        if before.masked_lm() == self.masked_lm() == ("encoder", "head"):
            return tuple(name for name in self.own_networks() if name in stored)
        return super().carried_networks(before, encoder, stored)

    def operations(self, encoder, max_seq_length, dense_lookup):
        """See `ObjectiveSettings.operations`; the head sees P of every S tokens."""
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        share = self.max_predictions(max_seq_length) / max_seq_length
        return None if forward is None else forward + count.masked_lm_head(encoder) * share

    def build(self, hparams, config, special_ids):
        return _build(hparams, config, special_ids)

"""Causal language modelling: its settings. causal_lm_loss.py computes it."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import model.operations as count
from errors import InputError
from plugins import lazily
from pretrain.objectives.base import ObjectiveSettings

_build = lazily("pretrain.objectives.causal_lm_loss:CausalLM")


@dataclasses.dataclass(frozen=True)
class CausalLMSettings(ObjectiveSettings):
    """Prediction of every token from those before it, by a causal encoder."""

    name: ClassVar[str] = "causal_lm"
    network_fields: ClassVar[tuple[str, ...]] = (
        *("adaptive_softmax_cutoffs", "adaptive_softmax_divisor"),
    )
    bar: ClassVar[dict[str, str]] = {"perplexity": "perplexity"}
    curves: ClassVar[tuple[str, ...]] = ("causal_lm_loss", "perplexity", "causal_lm_accuracy")

    # Ids at which groups of rarer tokens begin, ascending; empty: one softmax over all tokens.
    adaptive_softmax_cutoffs: list = dataclasses.field(default_factory=list)
    adaptive_softmax_divisor: int = 4  # of the width from each group to the next

    def check(self, encoder=None):
        cutoffs, name = self.adaptive_softmax_cutoffs, "adaptive_softmax_cutoffs"
        whole = all(type(cutoff) is int and cutoff > 0 for cutoff in cutoffs)
        ascending = whole and sorted({*cutoffs}) == cutoffs
        self.require(ascending, name, "ascending token ids above 0")
        self.require(self.adaptive_softmax_divisor >= 1, "adaptive_softmax_divisor", "at least 1")
        if encoder is None:
            return
        if not getattr(encoder, "causal", False):
            raise InputError(
                "`causal` should be true for the objective causal_lm: choose a `model_size` such as"
                " causal-mixed-small, or set it in `model_hparam_overrides`. Received: false"
            )
        fits = not cutoffs or cutoffs[-1] <= encoder.vocab_size
        self.require(fits, name, f"at most `vocab_size` ({encoder.vocab_size})")

    def causal_lm(self):
        return "encoder", "head"

    def derived_metrics(self, values, counts):
        """Perplexity per word, where the tokens are others: all loss of the text, by its words."""
        tokens, words = counts.get("tokens", 0), counts.get("words", 0)
        if not words or words == tokens:
            return {}
        per_word = values["causal_lm_loss"] * tokens / words
        return {"perplexity_per_word": math.exp(min(per_word, 700.0))}

    def operations(self, encoder, max_seq_length, dense_lookup):
        """See `ObjectiveSettings.operations`; every token is predicted."""
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        if forward is None:
            return None
        cutoffs, divisor = self.adaptive_softmax_cutoffs, self.adaptive_softmax_divisor
        return forward + count.causal_lm_head(encoder, cutoffs, divisor)

    def build(self, hparams, config, special_ids):
        return _build(hparams, config, special_ids)

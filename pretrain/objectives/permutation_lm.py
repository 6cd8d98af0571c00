"""Permutation language modelling: its settings. permutation_lm_loss.py computes it."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import model.operations as count
from errors import InputError
from plugins import lazily
from pretrain.objectives.base import ObjectiveSettings

_build = lazily("pretrain.objectives.permutation_lm_loss:PermutationLM")


@dataclasses.dataclass(frozen=True)
class PermutationLMSettings(ObjectiveSettings):
    """XLNet's objective (Yang et al. 2019): tokens are predicted in a random order."""

    name: ClassVar[str] = "permutation_lm"
    convertible: ClassVar[bool] = True
    bar: ClassVar[dict[str, str]] = {"permutation_lm_accuracy": "PLM accuracy"}
    curves: ClassVar[tuple[str, ...]] = ("permutation_lm_loss", "permutation_lm_accuracy")

    mask_prob: float = 0.166  # share of the tokens that is predicted: 85 of 512
    max_span_words: int = 5  # a span has 1 to so many words, each with a share of 1 / words
    span_context: int = 6  # tokens around a span that are not in another, for each of its words
    spans_in_pieces: bool = False  # the original's bug; see docs/deviations.md
    # Tokens that are put in order together, one window of a sequence after the other; null: all.
    perm_size: int | None = None
    # Hidden states of each layer that training keeps of the text before, in tokens; 0: none.
    memory_length: int = 0
    # Tokens by which sequences overlap, half of them; 0: they do not. See docs/guide.md.
    reuse_length: int = 0

    def check(self, encoder=None):
        self.require(0 < self.mask_prob < 1, "mask_prob", "in (0, 1)")
        self.require(self.max_span_words >= 1, "max_span_words", "at least 1")
        self.require(self.span_context >= 1, "span_context", "at least 1")
        size = self.perm_size
        self.require(size is None or size >= 1, "perm_size", "null or at least 1")
        self.require(self.memory_length >= 0, "memory_length", "at least 0")
        used = self.memory_length > 0
        self.require(used or self.reuse_length == 0, "reuse_length", "0 without `memory_length`")
        if encoder is not None and not getattr(encoder, "two_streams", False):
            raise InputError(
                "`model_size` should be of an architecture with two streams of attention, such as"
                f" xlnet-base, for the objective {self.name}. Received: {encoder.architecture}"
            )

    def max_predictions(self, max_seq_length: int) -> int:
        """P, predicted tokens of a sequence."""
        return max(1, round(self.mask_prob * max_seq_length))

    def in_order(self):
        return self.memory_length > 0

    def record_length(self, max_seq_length):
        """See `ObjectiveSettings.record_length`; a sequence that overlaps with others is two."""
        half = self.reuse_length
        expected = f"0, or half of `max_seq_length` ({max_seq_length})"
        self.require(half == 0 or 2 * half == max_seq_length, "reuse_length", expected)
        return half or max_seq_length

    def operations(self, encoder, max_seq_length, dense_lookup):
        """See `ObjectiveSettings.operations`; the second stream and the head have P tokens.

        With a memory they are not counted.
        """
        share = self.max_predictions(max_seq_length) / max_seq_length
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        queries = count.query_stream(encoder, max_seq_length)
        if forward is None or queries is None or self.memory_length:
            return None
        return forward + (queries + count.tied_head(encoder)) * share

    def build(self, hparams, config, special_ids):
        return _build(hparams, config, special_ids)

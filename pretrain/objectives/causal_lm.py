"""Causal language modelling: a causal encoder predicts each token from those before it."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import tensorflow as tf

import convbert.model.flops as count
from convbert.common.errors import InputError
from convbert.common.settings import at_least
from convbert.model import BackboneConfig, CausalLMHead, build_backbone
from convbert.model.kernels import vocabulary_cross_entropy
from convbert.pretrain.objectives.base import ObjectiveSettings, Offer, ScoringMethod, register
from convbert.training import metrics
from convbert.training.objective import Objective


def token_losses(
    head: CausalLMHead,
    sequence: tf.Tensor,
    batch: dict[str, tf.Tensor],
    *,
    used: tf.Tensor | None = None,
    training: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns -log p of each token but the first, from the hidden states before it.

    Args:
        sequence: [B, S, D].
        batch: `input_ids`, `input_mask` int32 [B, S].
        used: bool [B, S - 1], the tokens to compute, without the first. Default: all but padding.

    They are float32 [B, S - 1], 0 where not used. Also returns bool [B, S - 1], True if the token
    is the most probable one (with an adaptive softmax, of the most probable group).
    """
    ids = tf.reshape(batch["input_ids"][:, 1:], [-1])  # [T], T = B * (S - 1)
    used = tf.reshape(_predicted(batch) > 0 if used is None else used, [-1])
    hidden = sequence[:, :-1]
    transformed = head.transformed(hidden, training=training)
    first, *others = head.groups(tf.reshape(transformed, [-1, transformed.shape[-1]]))
    inside = [used & (ids >= group.start) & (ids < group.end) for group in others]
    wanted = ids
    for i, in_group in enumerate(inside):
        wanted = tf.where(in_group, first.end + i, wanted)
    nll, right = vocabulary_cross_entropy(first.inputs, first.table, first.bias, wanted, used)
    for group, in_group in zip(others, inside):
        more, best = vocabulary_cross_entropy(
            group.inputs, group.table, group.bias, ids - group.start, in_group
        )
        nll, right = nll + more, right & (best | ~in_group)
    shape = tf.shape(batch["input_ids"][:, 1:])
    return tf.reshape(nll, shape), tf.reshape(right, shape)


def _predicted(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Returns 1 for tokens that follow a token, int32 [B, S - 1]."""
    return batch["input_mask"][:, 1:] * batch["input_mask"][:, :-1]


def causal_log_scores(features, encode, head) -> tf.Tensor:
    """Returns log p(token | tokens before it), by a softmax in blocks: float32 [n, S]."""
    used = features["scored"][:, 1:] > 0
    nll, _ = token_losses(head, encode(features).sequence, features, used=used)
    return tf.pad(-nll, [[0, 0], [1, 0]])


CAUSAL = ScoringMethod("causal", ("encoder", "head"), causal_log_scores, causal=True)


@register
@dataclasses.dataclass(frozen=True)
class CausalLMSettings(ObjectiveSettings):
    """Settings of causal language modelling: one softmax, or an adaptive one over groups."""

    name: ClassVar = "causal_lm"
    signatures: ClassVar = (Offer("continue_text"),)
    scoring_methods: ClassVar = (CAUSAL,)
    network_fields: ClassVar = ("adaptive_softmax_cutoffs", "adaptive_softmax_divisor")
    bar: ClassVar = {"perplexity": "perplexity"}

    # Ascending ids at which groups of rarer tokens begin; empty: one softmax over all tokens.
    adaptive_softmax_cutoffs: list = dataclasses.field(default_factory=list)
    # Ratio of the widths of consecutive groups.
    adaptive_softmax_divisor: int = dataclasses.field(default=4, metadata=at_least(1))

    def check(self, encoder=None):
        cutoffs, name = self.adaptive_softmax_cutoffs, "adaptive_softmax_cutoffs"
        whole = all(type(cutoff) is int and cutoff > 0 for cutoff in cutoffs)
        ascending = whole and sorted({*cutoffs}) == cutoffs
        self.require(ascending, name, "ascending token ids above 0")
        if encoder is None:
            return
        if not getattr(encoder, "causal", False):
            how = "`model_hparam_overrides` (not modern's) or a size such as causal-mixed-small"
            raise InputError(f"`causal` should be true for causal_lm, by {how}. Received: false")
        fits = not cutoffs or cutoffs[-1] <= encoder.vocab_size
        self.require(fits, name, f"at most `vocab_size` ({encoder.vocab_size})")

    def operations(self, encoder, max_seq_length, dense_lookup):
        """Counts a prediction for every token."""
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        cutoffs, divisor = self.adaptive_softmax_cutoffs, self.adaptive_softmax_divisor
        return forward + count.causal_lm_head(encoder, cutoffs, divisor)

    def build(self, hparams, config, special_ids):
        return CausalLM(hparams, config, special_ids)


class CausalLM(Objective):
    """loss = mean of -log p(token | tokens before it) over all but the first of each sequence.

    Ignores segments, which are unknown for a text to be continued.
    """

    def __init__(self, hparams: Any, config: BackboneConfig, special_ids: dict[str, int]):
        super().__init__(name="causal_lm")
        self.hparams, self.special_ids = hparams, special_ids
        self.encoder = build_backbone(config)
        self.head = CausalLMHead(
            config,
            self.encoder.embeddings,
            pieces=hparams.vocab_size,
            cutoffs=hparams.objective.adaptive_softmax_cutoffs,
            divisor=hparams.objective.adaptive_softmax_divisor,
            name="next_token_predictions",
        )
        self.head(tf.zeros([1, 1, config.hidden_size]))

    def prepare(self, features, seed):
        return {name: features[name] for name in ("input_ids", "input_mask")}

    def normalizers(self, batch):
        return {"causal_lm": tf.cast(tf.reduce_sum(_predicted(batch)), tf.float32)}

    def loss(self, batch, normalizers, *, training, seed=None):
        encoded = self.encoder(batch, training=training, seed=seed)
        nll, right = token_losses(self.head, encoded.sequence, batch, training=training)
        weights = _predicted(batch)
        loss = tf.reduce_sum(nll) / (normalizers["causal_lm"] + 1e-6)
        return loss, {
            "causal_lm_loss": metrics.mean(nll, weights),
            "causal_lm_accuracy": metrics.mean(right, weights),
            "perplexity": metrics.exponential_of_mean(nll, weights),
        }

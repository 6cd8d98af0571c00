"""Masked language modelling: BERT's objective with dynamic masking, without next-sentence loss."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any, ClassVar

import tensorflow as tf

import convbert.model.flops as count
from convbert.common.errors import warn
from convbert.common.settings import at_least, between, one_of
from convbert.model import BackboneConfig, MaskedLMHead, build_backbone
from convbert.model.config import ACTIVATIONS
from convbert.pretrain.masking import draw_tokens, mask_tokens, replace_tokens
from convbert.pretrain.objectives import base
from convbert.pretrain.objectives.base import ObjectiveSettings, register
from convbert.pretrain.vocabulary_softmax import cross_entropy, most_likely, unnormalized_softmax
from convbert.training import metrics
from convbert.training.objective import Objective


def masked_log_scores(features, encode, head) -> tf.Tensor:
    """Returns log p(`token`) at the masked `position`, the only one with logits: float32 [n]."""
    logits = head(encode(features).sequence, features["position"][:, None])[:, 0]  # [n, V]
    return tf.gather(tf.nn.log_softmax(logits), features["token"], batch_dims=1)


# Salazar et al. 2020.
PSEUDO_LOG_LIKELIHOOD = base.ScoringMethod(
    "pseudo_log_likelihood", ("encoder", "head"), masked_log_scores, masks_each=True
)


@register
@dataclasses.dataclass(frozen=True)
class MaskedLMSettings(ObjectiveSettings):
    """Settings of masked language modelling: masking rates and the head's activation."""

    name: ClassVar = "masked_lm"
    converted: ClassVar[tuple[str, ...]] = ("encoder", "head")
    signatures: ClassVar[tuple[base.Offer, ...]] = (base.MASKED_TOKENS,)
    scoring_methods: ClassVar[tuple[base.ScoringMethod, ...]] = (PSEUDO_LOG_LIKELIHOOD,)
    network_fields: ClassVar[tuple[str, ...]] = ("masked_lm_act",)
    packs: ClassVar = True
    bar: ClassVar = {"masked_lm_accuracy": "MLM accuracy"}

    mask_prob: float = field(default=0.15, metadata=between(0, 1))  # share of tokens to predict
    # Shares of these replaced by [MASK] and by a random token (BERT, SCRIPT: 0.8 and 0.1).
    mask_token_prob: float = field(default=0.85, metadata=at_least(0))
    random_token_prob: float = field(default=0.0, metadata=at_least(0))
    mask_with_replacement: bool = False  # the original's colliding draws; see docs/deviations.md
    # Maskings of an example: 0 draws one at every step (dynamic); 1 never changes it (static); 10
    # takes one of ten, as RoBERTa's baseline, whose data held ten masked copies.
    static_masks: int = field(default=0, metadata=at_least(0))
    # Activation of the masked-LM head. Default: `hidden_act`.
    masked_lm_act: str | None = field(default=None, metadata=one_of(*ACTIVATIONS))

    def check(self, encoder=None):
        left = 1 - self.mask_token_prob
        expected = f"at most 1 - mask_token_prob ({left:g})"
        self.require(self.random_token_prob <= left + 1e-9, "random_token_prob", expected)
        if getattr(encoder, "causal", False):
            warn(
                f"objective {self.name}: `causal` is true, so masked tokens are predicted only from"
                " those before them; set it to false, or use the objective causal_lm"
            )

    def max_predictions(self, max_seq_length: int) -> int:
        """Returns P, the number of masked slots per sequence."""
        return max(1, int((self.mask_prob + 0.005) * max_seq_length))

    def carried_networks(self, before, encoder, stored):
        """Also carries the head between masked language models and self-critics, which share it."""
        if PSEUDO_LOG_LIKELIHOOD in {*before.scoring_methods} & {*self.scoring_methods}:
            return tuple(name for name in self.own_networks() if name in stored)
        return super().carried_networks(before, encoder, stored)

    def operations(self, encoder, max_seq_length, dense_lookup):
        """Counts the head for P of every S tokens."""
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        share = self.max_predictions(max_seq_length) / max_seq_length
        return forward + count.masked_lm_head(encoder) * share

    def build(self, hparams, config, special_ids):
        return MaskedLM(hparams, config, special_ids)


def masked_features(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the masked features of a prepared batch, the encoder's input."""
    names = ("input_mask", "segment_ids", "sequence_ids")
    others = {name: batch[name] for name in names if name in batch}
    return {"input_ids": batch["masked_input_ids"], **others}


def masked_lm_loss(
    logits: tf.Tensor, softmax: tf.Tensor, batch: dict[str, tf.Tensor], normalizer: tf.Tensor
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Computes the masked tokens' cross entropy: sum(weight * nll) / (sum(weight) + 1e-6).

    `logits` are float32 [B, P, V], `softmax` is their `unnormalized_softmax`, `normalizer` the sum
    of the weights over the global batch. Also returns the sums of `masked_lm_loss` and
    `masked_lm_accuracy`.
    """
    ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    nll = cross_entropy(logits, softmax, ids)  # [B, P]
    loss = tf.reduce_sum(nll * weights) / (normalizer + 1e-6)
    predictions = most_likely(logits)
    return loss, {
        "masked_lm_loss": metrics.mean(nll, weights),
        "masked_lm_accuracy": metrics.mean(predictions == ids, weights),
    }


def fill_in(
    logits: tf.Tensor, batch: dict[str, tf.Tensor], normalizer: tf.Tensor, temperature: float
) -> tuple[tf.Tensor, dict[str, tf.Tensor], tf.Tensor]:
    """Computes `masked_lm_loss`, and draws tokens for the masked positions from the predictions.

    Returns the loss; its metrics and `sampled_masked_lm_accuracy`; the ids with the drawn tokens,
    int32 [B, S], through which no gradient passes.
    """
    softmax = unnormalized_softmax(logits)
    loss, sums = masked_lm_loss(logits, softmax, batch, normalizer)
    sampled = draw_tokens(logits, softmax, batch, temperature)
    accuracy = metrics.mean(sampled == batch["masked_lm_ids"], batch["masked_lm_weights"])
    ids = replace_tokens(batch["input_ids"], batch["masked_lm_positions"], sampled)
    return loss, {**sums, "sampled_masked_lm_accuracy": accuracy}, ids


def masked_lm_head(hparams: Any, config: BackboneConfig, embeddings: tf.Module) -> MaskedLMHead:
    """Builds a head for an encoder of this configuration, with its variables."""
    head = MaskedLMHead(
        config,
        embeddings,
        pieces=hparams.vocab_size,
        activation=hparams.objective.masked_lm_act,
        name="generator_predictions",
    )
    head(tf.zeros([1, 1, config.hidden_size]), tf.zeros([1, 1], tf.int32))
    return head


class MaskedLM(Objective):
    """The encoder predicts the masked tokens. loss = masked_lm_loss"""

    def __init__(self, hparams: Any, config: BackboneConfig, special_ids: dict[str, int]):
        super().__init__(name=hparams.objective.name)
        self.hparams, self.special_ids = hparams, special_ids
        self.encoder = build_backbone(config)
        self.head = masked_lm_head(hparams, config, self.encoder.embeddings)

    def prepare(self, features, seed):
        return mask_tokens(features, self.hparams, self.special_ids, seed)

    def normalizers(self, batch):
        return {"masked_lm": tf.reduce_sum(batch["masked_lm_weights"])}

    def loss(self, batch, normalizers, *, training, seed=None):
        encoded = self.encoder(masked_features(batch), training=training, seed=seed)
        logits = self.head(encoded.sequence, batch["masked_lm_positions"], training=training)
        softmax = unnormalized_softmax(logits)
        return masked_lm_loss(logits, softmax, batch, normalizers["masked_lm"])

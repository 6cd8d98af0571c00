"""Permutation language modelling, XLNet's objective (Yang et al. 2019)."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any, ClassVar

import tensorflow as tf

import convbert.model.flops as count
from convbert.common.errors import InputError
from convbert.common.settings import at_least, between
from convbert.model import BackboneConfig, build_backbone
from convbert.model.xlnet.config import query_stream
from convbert.model.xlnet.network import XLNetLMHead
from convbert.pretrain.objectives.base import ObjectiveSettings, register
from convbert.pretrain.permutation import permitted, permute_tokens
from convbert.pretrain.vocabulary_softmax import cross_entropy, most_likely, unnormalized_softmax
from convbert.training import metrics
from convbert.training.objective import Objective


@register
@dataclasses.dataclass(frozen=True)
class PermutationLMSettings(ObjectiveSettings):
    """Settings of permutation language modelling: the share and spans of predicted tokens."""

    name: ClassVar = "permutation_lm"
    converted: ClassVar = ("encoder", "head")
    bar: ClassVar = {"permutation_lm_accuracy": "PLM accuracy"}

    mask_prob: float = field(default=0.166, metadata=between(0, 1))  # predicted: 85 of 512
    # A span has 1 to this many words, n with probability in proportion to 1 / n, and this many
    # tokens of context around it per word, which no other span uses.
    max_span_words: int = field(default=5, metadata=at_least(1))
    span_context: int = field(default=6, metadata=at_least(1))
    spans_in_pieces: bool = False  # the original's bug; see docs/deviations.md
    # Tokens per window of a sequence, which is permuted by itself; null: all in one window.
    perm_size: int | None = field(default=None, metadata=at_least(1))

    def check(self, encoder=None):
        if encoder is not None and not getattr(encoder, "two_streams", False):
            raise InputError(
                "`model_size` should be of an architecture with two streams of attention, such as"
                f" xlnet-base, for the objective {self.name}. Received: {encoder.architecture}"
            )

    def max_predictions(self, max_seq_length: int) -> int:
        """Returns P, the number of predicted tokens per sequence."""
        return max(1, round(self.mask_prob * max_seq_length))

    def operations(self, encoder, max_seq_length, dense_lookup):
        """Counts the query stream and the head for P tokens."""
        share = self.max_predictions(max_seq_length) / max_seq_length
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        queries = query_stream(encoder, max_seq_length)
        return forward + (queries + count.tied_head(encoder)) * share

    def build(self, hparams, config, special_ids):
        return PermutationLM(hparams, config, special_ids)


class PermutationLM(Objective):
    """loss = mean of -log p(token | tokens not predicted, and those before it in the order).

    One stream of the network reads the tokens; the other one predicts them without reading them.
    """

    def __init__(self, hparams: Any, config: BackboneConfig, special_ids: dict[str, int]):
        super().__init__(name="permutation_lm")
        self.hparams, self.special_ids = hparams, special_ids
        # If only ids are known, as in benchmarks, every token is a word.
        self._word_starts = tuple(getattr(special_ids, "word_starts", [True] * hparams.vocab_size))
        self.encoder = build_backbone(config)
        self.head = XLNetLMHead(config, self.encoder.embeddings, pieces=hparams.vocab_size)

    def prepare(self, features, seed):
        starts = tf.constant(self._word_starts)
        return permute_tokens(features, self.hparams, self.special_ids, starts, seed)

    def normalizers(self, batch):
        return {"permutation_lm": tf.reduce_sum(batch["target_weights"])}

    def loss(self, batch, normalizers, *, training, seed=None):
        streams = self.encoder.two_streams(
            batch,
            permitted(batch["order"], batch["limit"]),
            batch["target_positions"],
            self.head.mask_embedding,
            training=training,
            seed=seed,
        )
        logits = self.head(streams.queries)  # [B, P, V]
        ids, weights = batch["target_ids"], batch["target_weights"]
        nll = cross_entropy(logits, unnormalized_softmax(logits), ids)  # [B, P]
        loss = tf.reduce_sum(nll * weights) / (normalizers["permutation_lm"] + 1e-6)
        return loss, {
            "permutation_lm_loss": metrics.mean(nll, weights),
            "permutation_lm_accuracy": metrics.mean(most_likely(logits) == ids, weights),
        }

"""Permutation language modelling: its loss and networks. permutation_lm.py has its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from model import BackboneConfig, build_backbone
from model.xlnet.head import XLNetLMHead
from pretrain.permutation import permitted, permute_tokens
from pretrain.vocabulary_softmax import cross_entropy, most_likely, unnormalized_softmax
from training import metrics
from training.objective import Objective

if TYPE_CHECKING:
    from pretrain.hparams import PretrainingHParams


class PermutationLM(Objective):
    """XLNet's objective: some tokens are predicted from the others and from those before them.

    loss = mean of -log p(token | all tokens that are not predicted, those before it in the order).
    One stream of the network reads the tokens, the other one predicts them without having read
    them.
    """

    def __init__(self, hparams: PretrainingHParams, config: BackboneConfig, special_ids: dict):
        super().__init__(name="permutation_lm")
        self.hparams, self.special_ids = hparams, special_ids
        # Where only ids are known, as in benchmarks, every token is a word.
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

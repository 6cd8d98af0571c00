"""Permutation language modelling: its loss and networks. permutation_lm.py has its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from model import BackboneConfig, build_backbone
from model.xlnet.head import XLNetLMHead
from model.xlnet.network import next_memory
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

    With `memory_length`, all tokens also see hidden states of the text before, which training keeps
    from batch to batch. They begin as zeros, which are seen, as in the original. Evaluations have
    no memory.

    Attributes:
        memory: of every layer a variable [B, M, D], in training with `memory_length`.
    """

    def __init__(self, hparams: PretrainingHParams, config: BackboneConfig, special_ids: dict):
        super().__init__(name="permutation_lm")
        self.hparams, self.special_ids = hparams, special_ids
        # Where only ids are known, as in benchmarks, every token is a word.
        self._word_starts = tuple(getattr(special_ids, "word_starts", [True] * hparams.vocab_size))
        self.encoder = build_backbone(config)
        self.head = XLNetLMHead(config, self.encoder.embeddings, pieces=hparams.vocab_size)
        self.memory: list[tf.Variable] = []

    def begin_training(self, batch_size):
        config, length = self.encoder.config, self.hparams.objective.memory_length
        self.memory = [
            tf.Variable(tf.zeros([batch_size, length, config.hidden_size]), trainable=False)
            for _ in range(config.num_hidden_layers if length else 0)
        ]

    def prepare(self, features, seed):
        starts = tf.constant(self._word_starts)
        batch = permute_tokens(features, self.hparams, self.special_ids, starts, seed)
        # So that a part of the batch knows which of the memories are its own.
        return {**batch, "memory_index": tf.range(tf.shape(features["input_ids"])[0])}

    def normalizers(self, batch):
        return {"permutation_lm": tf.reduce_sum(batch["target_weights"])}

    def loss(self, batch, normalizers, *, training, seed=None):
        index, memory = batch["memory_index"], None
        if training and self.memory:
            memory = [tf.gather(states, index) for states in self.memory]  # [b, M, D]
        streams = self.encoder.two_streams(
            batch,
            permitted(batch["order"], batch["limit"]),
            batch["target_positions"],
            self.head.mask_embedding,
            training=training,
            seed=seed,
            memory=memory,
        )
        if memory:
            self._remember(streams.memory, memory, index)
        logits = self.head(streams.queries)  # [B, P, V]
        ids, weights = batch["target_ids"], batch["target_weights"]
        nll = cross_entropy(logits, unnormalized_softmax(logits), ids)  # [B, P]
        loss = tf.reduce_sum(nll * weights) / (normalizers["permutation_lm"] + 1e-6)
        return loss, {
            "permutation_lm_loss": metrics.mean(nll, weights),
            "permutation_lm_accuracy": metrics.mean(most_likely(logits) == ids, weights),
        }

    def _remember(self, inputs, previous, index):
        """Keeps what went into each layer [b, S, D], for the sequences of these indices [b]."""
        settings = self.hparams.objective
        kept = next_memory(
            inputs,
            previous,
            memory_length=settings.memory_length,
            reuse_length=settings.reuse_length or None,
        )
        for variable, states in zip(self.memory, kept, strict=True):
            variable.scatter_nd_update(index[:, None], tf.cast(states, variable.dtype))

"""Permutation language modelling, XLNet's objective (Yang et al. 2019)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import tensorflow as tf

import model.operations as count
from errors import InputError
from model import BackboneConfig, build_backbone
from model.xlnet.head import XLNetLMHead
from model.xlnet.network import next_memory
from pretrain.objectives.base import ObjectiveSettings
from pretrain.permutation import permitted, permute_tokens
from pretrain.vocabulary_softmax import cross_entropy, most_likely, unnormalized_softmax
from training import metrics
from training.objective import Objective


@dataclasses.dataclass(frozen=True)
class PermutationLMSettings(ObjectiveSettings):
    """Which tokens are predicted, in a random order, and what they see of the text before."""

    name: ClassVar = "permutation_lm"
    converted: ClassVar = ("encoder", "head")
    bar: ClassVar = {"permutation_lm_accuracy": "PLM accuracy"}
    curves: ClassVar = ("permutation_lm_loss", "permutation_lm_accuracy")

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
        """Returns P, predicted tokens of a sequence."""
        return max(1, round(self.mask_prob * max_seq_length))

    def in_order(self):
        return self.memory_length > 0

    def record_length(self, max_seq_length):
        """A sequence that overlaps with others is of two records."""
        half = self.reuse_length
        expected = f"0, or half of `max_seq_length` ({max_seq_length})"
        self.require(half == 0 or 2 * half == max_seq_length, "reuse_length", expected)
        return half or max_seq_length

    def operations(self, encoder, max_seq_length, dense_lookup):
        """The second stream and the head have P tokens. With a memory they are not counted."""
        share = self.max_predictions(max_seq_length) / max_seq_length
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        queries = count.query_stream(encoder, max_seq_length)
        if forward is None or queries is None or self.memory_length:
            return None
        return forward + (queries + count.tied_head(encoder)) * share

    def build(self, hparams, config, special_ids):
        return PermutationLM(hparams, config, special_ids)


class PermutationLM(Objective):
    """loss = mean of -log p(token | all that are not predicted, and those before it in the order).
    One stream of the network reads the tokens, the other one predicts them without having read
    them.

    With `memory_length`, all tokens also see hidden states of the text before, which training keeps
    from batch to batch. They begin as zeros, which are seen, as in the original. Evaluations have
    no memory.

    Attributes:
        memory: of every layer a variable [B, M, D], in training with `memory_length`.
    """

    def __init__(self, hparams: Any, config: BackboneConfig, special_ids: dict[str, int]):
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

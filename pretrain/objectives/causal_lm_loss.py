"""Causal language modelling: its loss and networks. causal_lm.py has its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from model import CausalLMHead, EncoderConfig, build_backbone
from model.kernels import vocabulary_cross_entropy
from training import metrics
from training.objective import Objective

if TYPE_CHECKING:
    from pretrain.hparams import PretrainingHParams


class CausalLM(Objective):
    """The encoder, which is causal, predicts the token after each token.

    loss = mean of -log p(token | those before it) over all tokens but the first of a sequence.
    Segments are not read: those of a text to continue would not be known.
    """

    def __init__(self, hparams: PretrainingHParams, config: EncoderConfig, special_ids: dict):
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


def token_losses(
    head: CausalLMHead,
    sequence: tf.Tensor,
    batch: dict[str, tf.Tensor],
    *,
    used: tf.Tensor | None = None,
    training: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """-log p of every token but the first, from the hidden states of those before it.

    Args:
        sequence: [B, S, D].
        batch: `input_ids`, `input_mask` int32 [B, S].
        used: bool [B, S - 1], of which tokens but the first; by default of all but padding.

    Returns:
        float32 [B, S - 1], 0 where not used; and bool [B, S - 1], whether the token is the most
        probable one. Of an adaptive softmax: of the most probable group, if any.
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
    """1 for tokens that follow a token, int32 [B, S - 1]."""
    return batch["input_mask"][:, 1:] * batch["input_mask"][:, :-1]

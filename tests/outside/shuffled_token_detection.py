"""Shuffled-token detection (Panda et al. 2021): some tokens swap places; which ones have moved?

An objective in one file, as somebody outside of this repository would write it:

    python run_pretraining.py --plugins shuffled_token_detection.py \
        --hparams '{"objective": "shuffled_token_detection", "shuffle_prob": 0.2}' ...
"""

import dataclasses
from typing import ClassVar

import tensorflow as tf

import convbert.model.flops as count
from convbert.model import DiscriminatorHead, build_backbone
from convbert.model.kernels import split_seeds
from convbert.pretrain.objectives import ObjectiveSettings, register
from convbert.pretrain.objectives.base import REPLACED_TOKENS
from convbert.pretrain.objectives.replaced_token_detection import DISCRIMINATOR
from convbert.training import metrics
from convbert.training.objective import Objective
from convbert.training.randomness import uniform_for_batch


@register
@dataclasses.dataclass(frozen=True)
class ShuffledTokenDetectionSettings(ObjectiveSettings):
    """`shuffle_prob` is the share of the tokens that swap places."""

    name: ClassVar[str] = "shuffled_token_detection"
    bar: ClassVar[dict[str, str]] = {"disc_auc": "AUC"}
    signatures: ClassVar[tuple] = (REPLACED_TOKENS,)
    scoring_methods: ClassVar[tuple] = (DISCRIMINATOR,)

    shuffle_prob: float = 0.15

    def check(self, encoder=None):
        self.require(0 < self.shuffle_prob < 1, "shuffle_prob", "in (0, 1)")

    def operations(self, encoder, max_seq_length, dense_lookup):
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        return forward + count.discriminator_head(encoder)

    def build(self, hparams, config, special_ids):
        return ShuffledTokenDetection(self, config, special_ids)


class ShuffledTokenDetection(Objective):
    """loss = binary cross entropy of "is not the token of the text", over all tokens."""

    def __init__(self, settings, config, special_ids):
        super().__init__(name="shuffled_token_detection")
        self.settings, self.special_ids = settings, special_ids
        self.encoder = build_backbone(config)
        self.head = DiscriminatorHead(config, name="discriminator_predictions")
        self.head(tf.zeros([1, 1, config.hidden_size]))

    def prepare(self, features, seed):
        ids = features["input_ids"]  # [B, S]
        B, S = tf.unstack(tf.shape(ids))
        moved = features["input_mask"] > 0
        for special in self.special_ids.values():
            moved &= ids != special
        chance_seed, order_seed = split_seeds(seed, 2)
        moved &= uniform_for_batch(chance_seed, B, [S]) < self.settings.shuffle_prob
        order = uniform_for_batch(order_seed, B, [S])
        in_place = 1.0 + tf.range(S, dtype=tf.float32)[None]  # after all that move
        places = tf.argsort(tf.where(moved, 0.0, in_place), stable=True)
        sources = tf.argsort(tf.where(moved, order, in_place), stable=True)
        shuffled = tf.gather(
            tf.gather(ids, sources, batch_dims=1), tf.argsort(places), batch_dims=1
        )
        return {**features, "shuffled_ids": shuffled}

    def normalizers(self, batch):
        return {"disc": tf.cast(tf.reduce_sum(batch["input_mask"]), tf.float32)}

    def loss(self, batch, normalizers, *, training, seed=None):
        features = {**batch, "input_ids": batch["shuffled_ids"]}
        encoded = self.encoder(features, training=training, seed=seed)
        logits = self.head(encoded.sequence, training=training)  # [B, S]
        labels = tf.cast(batch["shuffled_ids"] != batch["input_ids"], tf.int32)
        mask = batch["input_mask"]
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
        loss = tf.reduce_sum(entropy * tf.cast(mask, tf.float32)) / normalizers["disc"]
        return loss, {
            "disc_loss": metrics.mean(entropy, mask),
            "disc_auc": metrics.auc(tf.sigmoid(logits), labels, mask),
        }

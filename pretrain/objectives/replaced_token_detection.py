"""Replaced-token detection: the objective of ELECTRA and ConvBERT."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any, ClassVar

import tensorflow as tf

import convbert.model.flops as count
from convbert.common.errors import InputError, located
from convbert.common.settings import above, at_least, differences
from convbert.model import Backbone, BackboneConfig, DiscriminatorHead, MaskedLMHead, build_backbone
from convbert.model.kernels import split_seeds
from convbert.pretrain.masking import detection_metrics, mask_and_draw
from convbert.pretrain.objectives import base, masked_lm
from convbert.training.objective import Objective

_GENERATOR = ("generator", "generator_head")
# Encoder fields that differ in the generator.
_SCALED = (
    *("embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    "intermediate_size",
)
_TABLES = ("word_embeddings", "token_type_embeddings", "position_embeddings")
# As in Electric, though a discriminator of ELECTRA's or ConvBERT's kind is not trained to give
# log-probabilities.
DISCRIMINATOR = base.ScoringMethod(
    "discriminator_heuristic",
    ("encoder", "head"),
    lambda features, encode, head: -head(encode(features).sequence),
)


@base.register
@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetectionSettings(masked_lm.MaskedLMSettings):
    """Settings of replaced-token detection: of generator, discriminator and their losses.

    The generator, which draws replacements, predicts masked tokens as in `MaskedLMSettings`.
    """

    name: ClassVar = "replaced_token_detection"
    networks: ClassVar = ("encoder", "head", *_GENERATOR)
    converted: ClassVar = networks
    signatures: ClassVar = (base.REPLACED_TOKENS, base.MASKED_TOKENS._replace(networks=_GENERATOR))
    scoring_methods: ClassVar = (
        DISCRIMINATOR,
        masked_lm.PSEUDO_LOG_LIKELIHOOD._replace(networks=_GENERATOR),
    )
    network_fields: ClassVar = (
        *("generator_layers", "generator_hidden_size", "generator_intermediate_size"),
        *("untied_generator", "untied_generator_embeddings", "disentangled_embeddings"),
        "uniform_generator",
        "masked_lm_act",
    )
    bar: ClassVar = {"disc_auc": "AUC", "masked_lm_accuracy": "MLM accuracy"}

    # Weights of the generator's masked-LM loss and of the discriminator's loss.
    gen_weight: float = field(default=1.0, metadata=at_least(0))
    disc_weight: float = field(default=50.0, metadata=at_least(0))
    # The generator's share of the discriminator's layers; of its width, inner width and heads.
    generator_layers: float = field(default=1.0, metadata=above(0))
    generator_hidden_size: float | None = field(default=None, metadata=above(0))
    # The generator's inner width, absolute. Default: 4 times its width; modern: the same share.
    generator_intermediate_size: int | None = field(default=None, metadata=at_least(1))
    untied_generator: bool = True  # False: the discriminator is its own generator
    untied_generator_embeddings: bool = False
    # DeBERTaV3's sharing: the discriminator's tables are the generator's, without a gradient, plus
    # a difference that the discriminator learns.
    disentangled_embeddings: bool = False
    uniform_generator: bool = False  # replacements drawn uniformly from the vocabulary
    # Sampling temperature of the generator (ALE report: 0.8).
    temperature: float = field(default=1.0, metadata=above(0))

    def resolve(self, model_size):
        """Sets the generator's width by Table 1 of the supplement."""
        if self.generator_hidden_size is not None:
            return self
        share = 1 / 3 if model_size.endswith(("base", "-150m")) else 1 / 4
        return dataclasses.replace(self, generator_hidden_size=share)

    def check(self, encoder=None):
        super().check(encoder)
        fits = "generator" in self.own_networks() and not self.untied_generator_embeddings
        expected = "false without an untied generator, or with untied embeddings"
        self.require(fits or not self.disentangled_embeddings, "disentangled_embeddings", expected)
        if encoder is None or "generator" not in self.own_networks():
            return
        missing = {*_SCALED} - {field.name for field in dataclasses.fields(encoder)}
        self.require(
            not missing,
            "untied_generator",
            f"false, as a generator needs the fields {', '.join(sorted(missing))}, which an encoder"
            f" of architecture {encoder.architecture} lacks",
        )
        share = f"{self.generator_hidden_size:g}"
        with located(f"the generator does not fit the encoder (`generator_hidden_size` {share})"):
            self.generator_config(encoder)

    @property
    def unread(self):
        fields = ("generator_layers", "generator_hidden_size", "generator_intermediate_size")
        fields += ("untied_generator_embeddings",)
        if self.uniform_generator:
            return (*fields, "temperature", "masked_lm_act", "untied_generator")
        return () if self.untied_generator else fields

    def own_networks(self):
        if self.uniform_generator:
            return "encoder", "head"
        tied = () if self.untied_generator else ("generator",)
        return tuple(name for name in self.networks if name not in tied)

    def generator_config(self, config: BackboneConfig) -> BackboneConfig:
        """Returns an untied generator's configuration: the discriminator's, scaled by the shares.

        Source: util/training_utils.py of ELECTRA and ConvBERT. Shared embeddings keep their width;
        with `untied_generator_embeddings` they are as wide as the generator's layers. InputError if
        an encoder of that width is not possible.
        """
        share = self.generator_hidden_size
        hidden_size = round(config.hidden_size * share)
        untied = self.untied_generator_embeddings
        return config.replace(
            hidden_size=hidden_size,
            embedding_size=hidden_size if untied else config.embedding_size,
            num_hidden_layers=max(1, round(config.num_hidden_layers * self.generator_layers)),
            # Rounded where the original truncates: 12 heads times 0.33333 are 4 heads, not 3.
            num_attention_heads=max(1, round(config.num_attention_heads * share)),
            intermediate_size=self.generator_intermediate_size or config.inner_size(hidden_size),
        )

    def carried_networks(self, before, encoder, stored):
        carried = super().carried_networks(before, encoder, stored)
        if before.name != self.name:
            return carried
        if "generator" in carried:
            there, now = (
                {
                    "untied_generator_embeddings": settings.untied_generator_embeddings,
                    "disentangled_embeddings": settings.disentangled_embeddings,
                    **dataclasses.asdict(settings.generator_config(encoder)),
                }
                for settings in (before, self)
            )
            if changed := differences(there, now):
                raise InputError("another generator:\n  " + "\n  ".join(changed))
        elif before.untied_generator != self.untied_generator:  # the head has another width
            carried = tuple(name for name in carried if name != "generator_head")
        return carried

    def operations(self, encoder, max_seq_length, dense_lookup):
        forward = count.forward(encoder, max_seq_length, dense_lookup)
        detection = forward + count.discriminator_head(encoder)
        if self.uniform_generator:
            return detection
        generator = self.generator_config(encoder) if self.untied_generator else encoder
        return detection + super().operations(generator, max_seq_length, dense_lookup)

    def build(self, hparams, config, special_ids):
        return ReplacedTokenDetection(hparams, config, special_ids)


class ReplacedTokenDetection(Objective):
    """A small generator replaces masked tokens; the encoder detects which tokens it replaced.

    loss = gen_weight * masked-LM loss + disc_weight * binary cross entropy over all tokens.
    No gradient passes through the sampled tokens. A sampled token equal to the original is
    labelled "original" (0).
    """

    def __init__(self, hparams: Any, config: BackboneConfig, special_ids: dict[str, int]):
        super().__init__(name="replaced_token_detection")
        self.hparams, self.special_ids = hparams, special_ids
        self.encoder = build_backbone(config)
        self.head = DiscriminatorHead(config, name="discriminator_predictions")
        self.head(tf.zeros([1, 1, config.hidden_size]))
        self.generator: Backbone | None = None
        self.generator_head: MaskedLMHead | None = None
        settings = hparams.objective
        if settings.uniform_generator:
            return
        self.generator = self.encoder
        if settings.untied_generator:
            own = settings.untied_generator_embeddings or settings.disentangled_embeddings
            shared = None if own else self.encoder.embeddings
            scaled = settings.generator_config(config)
            self.generator = build_backbone(scaled, shared, name="generator")
        for variable, leader in self.followers:
            variable.assign(leader)
        scaled, embeddings = self.generator.config, self.generator.embeddings
        self.generator_head = masked_lm.masked_lm_head(hparams, scaled, embeddings)

    @property
    def followers(self):
        if self.generator is None or not self.hparams.objective.disentangled_embeddings:
            return []
        own, leading = self.encoder.embeddings, self.generator.embeddings
        return [(getattr(own, n), getattr(leading, n)) for n in _TABLES if hasattr(own, n)]

    def prepare(self, features, seed):
        return mask_and_draw(features, self.hparams, self.special_ids, seed)

    def normalizers(self, batch):
        return {
            "masked_lm": tf.reduce_sum(batch["masked_lm_weights"]),
            "disc": tf.cast(tf.reduce_sum(batch["input_mask"]), tf.float32),
        }

    def loss(self, batch, normalizers, *, training, seed=None):
        gen_seed, disc_seed = split_seeds(seed, 2) if training else (None, None)
        settings = self.hparams.objective
        logits = self.generator_logits(batch, training=training, seed=gen_seed)
        normalizer, temperature = normalizers["masked_lm"], settings.temperature
        gen_loss, gen_sums, ids = masked_lm.fill_in(logits, batch, normalizer, temperature)
        encoded = self.encoder({**batch, "input_ids": ids}, training=training, seed=disc_seed)
        logits = self.head(encoded.sequence, training=training)  # [B, S]
        labels, mask = tf.cast(ids != batch["input_ids"], tf.int32), batch["input_mask"]
        disc_sums = detection_metrics(logits, labels, mask)
        disc_loss = disc_sums["disc_loss"][0] / (normalizers["disc"] + 1e-6)
        loss = settings.gen_weight * gen_loss + settings.disc_weight * disc_loss
        return loss, {**gen_sums, **disc_sums}

    def generator_logits(self, batch, *, training=False, seed=None) -> tf.Tensor:
        """Returns the generator's logits for the masked slots, float32 [B, P, V]."""
        positions = batch["masked_lm_positions"]
        if self.generator is None or self.generator_head is None:
            B, P = tf.unstack(tf.shape(positions))
            return tf.zeros([B, P, self.hparams.vocab_size])  # padding rows are never drawn
        encoded = self.generator(masked_lm.masked_features(batch), training=training, seed=seed)
        return self.generator_head(encoded.sequence, positions, training=training)

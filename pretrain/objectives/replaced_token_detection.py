"""Replaced-token detection: its settings. replaced_token_detection_loss.py computes it."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import model.operations as count
from errors import InputError
from model.config import BackboneConfig
from plugins import lazily
from pretrain.objectives.masked_lm import MaskedLMSettings
from settings import differences

# Fields of an encoder that its generator has other values of.
_SCALED = (
    *("embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    "intermediate_size",
)
_build = lazily("pretrain.objectives.replaced_token_detection_loss:ReplacedTokenDetection")


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetectionSettings(MaskedLMSettings):
    """ELECTRA's objective, with which ConvBERT is pre-trained.

    `head` says of every token whether it was replaced; the generator, which draws replacements,
    predicts masked tokens as `MaskedLMSettings` says.
    """

    name: ClassVar[str] = "replaced_token_detection"
    networks: ClassVar[tuple[str, ...]] = ("encoder", "head", "generator", "generator_head")
    network_fields: ClassVar[tuple[str, ...]] = (
        *("generator_layers", "generator_hidden_size", "generator_intermediate_size"),
        *("untied_generator", "untied_generator_embeddings", "uniform_generator"),
        "masked_lm_act",
    )
    bar: ClassVar[dict[str, str]] = {"disc_auc": "AUC", "masked_lm_accuracy": "MLM accuracy"}
    curves: ClassVar[tuple[str, ...]] = (
        *("masked_lm_loss", "masked_lm_accuracy"),
        *("disc_loss", "disc_auc"),
    )

    gen_weight: float = 1.0  # weight of the generator's masked-LM loss
    disc_weight: float = 50.0  # weight of the discriminator's loss
    generator_layers: float = 1.0  # share of the discriminator's layers
    generator_hidden_size: float | None = None  # share of its width, inner width and heads
    generator_intermediate_size: int | None = None  # inner width; by default 4 times its width
    untied_generator: bool = True  # False: the discriminator is its own generator
    untied_generator_embeddings: bool = False
    uniform_generator: bool = False  # replacements drawn uniformly from the vocabulary
    disallow_correct: bool = False  # the generator may not sample the right token
    temperature: float = 1.0  # of the generator's sampling (ALE report: 0.8)

    def resolve(self, model_size):
        """See `ObjectiveSettings.resolve`; the width is that of Table 1 of the supplement."""
        if self.generator_hidden_size is not None:
            return self
        share = 1 / 3 if model_size.endswith("base") else 1 / 4
        return dataclasses.replace(self, generator_hidden_size=share)

    def check(self, encoder=None):
        super().check(encoder)
        self.require(self.temperature > 0, "temperature", "greater than 0")
        for name in ("gen_weight", "disc_weight"):
            self.require(getattr(self, name) >= 0, name, "at least 0")
        for name in ("generator_layers", "generator_hidden_size"):
            share = getattr(self, name)
            self.require(share is None or 0 < share < math.inf, name, "greater than 0")
        inner = self.generator_intermediate_size
        valid = inner is None or inner >= 1
        self.require(valid, "generator_intermediate_size", "at least 1 or null")
        if encoder is None or "generator" not in self.own_networks():
            return
        missing = {*_SCALED} - {field.name for field in dataclasses.fields(encoder)}
        self.require(
            not missing,
            "untied_generator",
            f"false, as a generator needs the fields {', '.join(sorted(missing))}, which an encoder"
            f" of architecture {encoder.architecture} lacks",
        )
        try:
            self.generator_config(encoder)
        except InputError as error:
            raise InputError(
                f"`generator_hidden_size` {self.generator_hidden_size:g} does not fit the"
                f" encoder: {error}"
            ) from error

    def own_networks(self):
        if self.uniform_generator:
            return "encoder", "head"
        tied = {} if self.untied_generator else {"generator"}
        return tuple(name for name in self.networks if name not in tied)

    def masked_lm(self):
        if self.uniform_generator:
            return None
        return "generator" if self.untied_generator else "encoder", "generator_head"

    def detector(self):
        return "encoder", "head"

    def generator_config(self, config: BackboneConfig) -> BackboneConfig:
        """An untied generator: the discriminator scaled by its share of width and layers.

        Source: util/training_utils.py of ELECTRA and ConvBERT. Its embeddings keep their width when
        they are shared, and are as wide as its layers when `untied_generator_embeddings`. Its inner
        width is four times its width unless `generator_intermediate_size` says otherwise.

        Raises:
            InputError: there is no encoder of such a width.
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
            intermediate_size=self.generator_intermediate_size or 4 * hidden_size,
        )

    def carried_networks(self, before, encoder, stored):
        carried = super().carried_networks(before, encoder, stored)
        if before.name != self.name:
            return carried
        if "generator" in carried:
            there, now = (
                {
                    "untied_generator_embeddings": settings.untied_generator_embeddings,
                    **dataclasses.asdict(settings.generator_config(encoder)),
                }
                for settings in (before, self)
            )
            if changed := differences(there, now):
                raise InputError("another generator:\n  " + "\n  ".join(changed))
        elif before.untied_generator != self.untied_generator:  # the head is of another width
            carried = tuple(name for name in carried if name != "generator_head")
        return carried

    def operations(self, encoder, max_seq_length, dense_lookup):
        detection = count.forward(encoder, max_seq_length, dense_lookup)
        if detection is None:
            return None
        detection += count.discriminator_head(encoder)
        if self.uniform_generator:
            return detection
        generator = self.generator_config(encoder) if self.untied_generator else encoder
        return detection + super().operations(generator, max_seq_length, dense_lookup)

    def build(self, hparams, config, special_ids):
        return _build(hparams, config, special_ids)

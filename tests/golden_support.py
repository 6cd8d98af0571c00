"""Loads what the original code computed (tests/golden/, see its README) and our networks for it."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib

import numpy as np
import tensorflow as tf

from convbert.checkpoints import names, tf1
from convbert.checkpoints.tf1_file import TensorFile
from convbert.model import DiscriminatorHead, Encoder, EncoderConfig, MaskedLMHead, build_encoder

GOLDEN = pathlib.Path(__file__).parent / "golden"
MODELS = ("sdconv", "sdconv_k5", "sdconv_grouped", "electra", "bottleneck")
CHECKPOINT = "model.ckpt-0"


@dataclasses.dataclass(frozen=True)
class Golden:
    """A folder of tests/golden/: its reference arrays and our networks with its weights.

    Attributes:
        reference: name -> array of `reference.npz`.
        variables: original name -> our variable, of all four networks.
    """

    reference: dict[str, np.ndarray]
    config: EncoderConfig
    generator_config: EncoderConfig
    discriminator: Encoder
    generator: Encoder
    masked_lm_head: MaskedLMHead
    discriminator_head: DiscriminatorHead
    variables: dict[str, tf.Variable]

    def features(self, ids_name: str) -> dict[str, tf.Tensor]:
        """The encoder's features with the ids of that name in the reference, int32 [B, S]."""
        names = {"input_ids": ids_name, "input_mask": "input_mask", "segment_ids": "segment_ids"}
        return {name: tf.constant(self.reference[source]) for name, source in names.items()}


def masked_batch(reference: dict[str, np.ndarray]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """The batch as the original masked it, and the tokens [B, P] that it sampled."""
    names = ("input_mask", "segment_ids", "input_ids", "masked_input_ids", "masked_lm_positions")
    names += ("masked_lm_ids", "masked_lm_weights")
    batch = {name: tf.constant(reference[name]) for name in names}
    corrupted = tf.constant(reference["corrupted_input_ids"])
    return batch, tf.gather(corrupted, batch["masked_lm_positions"], batch_dims=1)


def read_config(folder: str) -> EncoderConfig:
    """The encoder that the `config.json` of a folder describes by itself."""
    fields = tf1._encoder_fields(tf1._read_config(f"{folder}/config.json"))
    return EncoderConfig(**fields, mask_padding=False)


def generator_config(name: str) -> EncoderConfig:
    """The generator of a folder; the widths are the original's, stored in `config.json`."""
    fields = json.loads((GOLDEN / name / "config.json").read_text(encoding="utf-8"))
    return read_config(str(GOLDEN / name)).replace(
        hidden_size=fields["generator_hidden_size"],
        intermediate_size=fields["generator_intermediate_size"],
        num_attention_heads=fields["generator_num_attention_heads"],
    )


@functools.cache
def load_golden(name: str) -> Golden:
    """Builds the four networks of a folder and reads its checkpoint into them."""
    folder = GOLDEN / name
    config, small = read_config(str(folder)), generator_config(name)
    discriminator = build_encoder(config, name="discriminator")
    generator = build_encoder(small, discriminator.embeddings, name="generator")
    masked_lm_head = MaskedLMHead(small, discriminator.embeddings)
    masked_lm_head(tf.zeros([1, 1, small.hidden_size]), tf.zeros([1, 1], tf.int32))
    discriminator_head = DiscriminatorHead(config)
    discriminator_head(tf.zeros([1, 1, config.hidden_size]))
    slots = {
        **names.original_encoder(discriminator),
        **names.original_encoder(generator, scope="generator"),
        **names.original_head(masked_lm_head),
        **names.original_head(discriminator_head),
    }
    variables = {name: slot.variables[0] for name, slot in slots.items()}
    file = TensorFile(str(folder / CHECKPOINT))
    for name, variable in variables.items():
        variable.assign(file.read(name))
    with np.load(folder / "reference.npz") as arrays:
        reference = dict(arrays)
    return Golden(
        reference,
        config,
        small,
        discriminator,
        generator,
        masked_lm_head,
        discriminator_head,
        variables,
    )

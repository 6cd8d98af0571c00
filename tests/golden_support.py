"""Loads what the original code computed (tests/golden/, see its README)."""

import pathlib

import numpy as np
import tensorflow as tf

from convbert.checkpoints import tf1
from convbert.model import EncoderConfig

GOLDEN = pathlib.Path(__file__).parent / "golden"
MODELS = ("sdconv", "sdconv_k5", "sdconv_grouped", "electra", "bottleneck")
CHECKPOINT = "model.ckpt-0"


def reference(name: str) -> dict[str, np.ndarray]:
    """The arrays of a folder of tests/golden/."""
    with np.load(GOLDEN / name / "reference.npz") as arrays:
        return dict(arrays)


def features(reference: dict[str, np.ndarray], ids_name: str) -> dict[str, tf.Tensor]:
    """The encoder's features with the ids of that name in the reference, int32 [B, S]."""
    names = {"input_ids": ids_name, "input_mask": "input_mask", "segment_ids": "segment_ids"}
    return {name: tf.constant(reference[source]) for name, source in names.items()}


def masked_batch(reference: dict[str, np.ndarray]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """The batch as the original masked it, and the tokens [B, P] that it sampled."""
    names = ("input_mask", "segment_ids", "input_ids", "masked_input_ids", "masked_lm_positions")
    names += ("masked_lm_ids", "masked_lm_weights")
    batch = {name: tf.constant(reference[name]) for name in names}
    corrupted = tf.constant(reference["corrupted_input_ids"])
    return batch, tf.gather(corrupted, batch["masked_lm_positions"], batch_dims=1)


def read_config(name: str) -> EncoderConfig:
    """The encoder that the `config.json` of a folder describes by itself."""
    fields = tf1._encoder_fields(tf1._read_config(str(GOLDEN / name / "config.json")))
    return EncoderConfig(**fields, mask_padding=False)

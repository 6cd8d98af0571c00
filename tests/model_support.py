"""A tiny encoder and weights large enough that every part of it shows in the output."""

from __future__ import annotations

import numpy as np
import tf_keras

from model import EncoderConfig

TINY = EncoderConfig(
    vocab_size=31,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=32,
    max_position_embeddings=64,
    conv_kernel_size=5,
)


def randomize(layer: tf_keras.layers.Layer, seed: int = 0, scale: float = 0.5) -> None:
    """Draws all weights of a built layer from a normal distribution.

    As initialised, weights are of 0.02 and biases zero: softmaxes come out flat and a missing bias
    goes unseen.
    """
    draw = np.random.default_rng(seed)
    layer.set_weights([draw.normal(0, scale, weight.shape) for weight in layer.get_weights()])


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    """Normally distributed float32 values."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def random_features(B: int, S: int, lengths=None, vocab_size: int = 31, seed: int = 2) -> dict:
    """The features of a random batch, int32 [B, S]; `lengths` are the rows' without padding."""
    draw = np.random.default_rng(seed)
    lengths = np.full(B, S) if lengths is None else np.asarray(lengths)
    mask = (np.arange(S) < lengths[:, None]).astype(np.int32)  # [B, S]
    return {
        "input_ids": draw.integers(1, vocab_size, [B, S]).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": draw.integers(0, 2, [B, S]).astype(np.int32) * mask,
    }

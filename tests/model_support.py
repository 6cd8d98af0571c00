"""Tiny encoders and weights large enough that every part of it shows in the output."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.model import EncoderConfig, build_backbone
from convbert.model.config import CONVOLUTIONS
from convbert.model.modern import ModernConfig
from convbert.model.xlnet.config import XLNetConfig

_SIZES = {"vocab_size": 31, "hidden_size": 16, "num_attention_heads": 4}
_SIZES |= {"max_position_embeddings": 64}
TINY = EncoderConfig(
    **_SIZES, embedding_size=8, num_hidden_layers=2, intermediate_size=32, conv_kernel_size=5
)
TINY_XLNET = XLNetConfig(**_SIZES, num_hidden_layers=2, intermediate_size=24)
_BLOCK = {"local_attention": 4, "conv_kernel_size": 5}
TINY_MODERN = ModernConfig(
    **_SIZES, **_BLOCK, embedding_size=16, num_hidden_layers=4, intermediate_size=12
)
SPECIAL = {"cls": 2, "sep": 3, "mask": 4}
# Every token mixer with every convolution that it has.
MIXERS = [
    ("attention", "span"),
    *[(mixer, kind) for mixer in ("mixed", "convolution") for kind in CONVOLUTIONS],
]


def slow_but(quick, names) -> list:
    """Parameters of a test, marked as slow but for those that are `quick`."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


def build_tiny(base=TINY, **changes):
    encoder = build_backbone(base.replace(**changes))
    randomize(encoder)
    return encoder


def randomize(layer: tf_keras.layers.Layer, seed: int = 0, scale: float = 0.5) -> None:
    """Draws all weights of a built layer from a normal distribution. As initialised, weights are of
    0.02 and biases zero: softmaxes come out flat and a missing bias goes unseen."""
    draw = np.random.default_rng(seed)
    layer.set_weights([draw.normal(0, scale, weight.shape) for weight in layer.get_weights()])


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def framed_texts(B: int, S: int, lengths=None, vocab_size: int = 31, seed: int = 0) -> dict:
    """Features of `[CLS] tokens [SEP] tokens [SEP]` and padding, with the ids of SPECIAL."""
    draw, places = np.random.default_rng(seed), np.arange(S)
    lengths = np.full(B, S) if lengths is None else np.asarray(lengths)
    ids = draw.integers(5, vocab_size, [B, S]).astype(np.int32)
    ids[:, 0] = SPECIAL["cls"]
    ids[np.arange(B), lengths // 2] = ids[np.arange(B), lengths - 1] = SPECIAL["sep"]
    mask = (places < lengths[:, None]).astype(np.int32)
    segments = (places > lengths[:, None] // 2) * mask
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments}


def tensors(features: dict) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value, tf.int32) for name, value in features.items()}


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

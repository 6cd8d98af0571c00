"""Original checkpoints that are not read: a sentence that names file and tensor, nothing left."""

from __future__ import annotations

import os

import numpy as np
import pytest

from errors import InputError
from tests.golden_support import GOLDEN
from tests.tf1_support import convert, golden_tensors, write_original


def with_nan(tensors):
    name = "electra/encoder/layer_1/output/dense/kernel"
    tensors[name] = tensors[name].copy()
    tensors[name][3, 4] = np.nan


def with_nan_moment(tensors):
    tensors["electra/embeddings/LayerNorm/gamma/adam_v"] = np.full(16, np.inf, np.float32)


def with_negative_moment(tensors):
    tensors["electra/embeddings/LayerNorm/gamma/adam_v"] = np.full(16, -0.5, np.float32)


def with_negative_step(tensors):
    tensors["global_step"] = np.int64(-5)


def without_bias(tensors):
    del tensors["electra/encoder/layer_1/output/dense/bias"]


def with_another_convolution(tensors):
    """A `conv_type` that is not known: one tensor more in every layer."""
    tensors["electra/encoder/layer_0/attention/self/conv_attn_gate/kernel"] = np.zeros(
        [32, 16], np.float32
    )


def without_span_key(tensors):
    for name in list(tensors):
        if "conv_attn_key" in name:
            del tensors[name]


def with_another_shape(tensors):
    tensors["generator_predictions/dense/kernel"] = np.zeros([16, 8], np.float32)


def in_half_precision(tensors):
    name = "electra/embeddings/word_embeddings"
    tensors[name] = tensors[name].astype(np.float16)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (with_nan, "layer_1/output/dense/kernel should hold finite numbers. Received: 1 of 2048"),
        (with_nan_moment, "gamma/adam_v should hold finite numbers. Received: 16 of 16"),
        (with_negative_moment, "gamma/adam_v, a mean of squares, should be at least 0. Receiv"),
        (with_negative_step, "global_step should be at least 0. Received: -5"),
        (without_bias, "tensor electra/encoder/layer_1/output/dense/bias of shape [32] is missing"),
        (with_another_convolution, "conv_attn_gate/kernel of shape [32, 16] has no place in"),
        (without_span_key, "conv_attn_kernel/bias of shape [18] has no place in the network"),
        (with_another_shape, "generator_predictions/dense/kernel should have shape [16, 16]"),
        (in_half_precision, "word_embeddings should be of type float32. Received: float16"),
    ],
)
def test_bad_tensors_are_named_and_nothing_is_left(tmp_path, damage, complaint):
    tensors = golden_tensors("sdconv")
    damage(tensors)
    source = write_original(tmp_path / "original", tensors, config={"num_attention_heads": 4})
    with pytest.raises(InputError) as error:
        convert(source, tmp_path / "model")
    assert complaint in str(error.value)
    assert str(source) in str(error.value)
    assert os.listdir(tmp_path) == ["original"]


def test_moments_of_no_variable_are_named(tmp_path):
    tensors = golden_tensors("sdconv")
    tensors["electra/junk/adam_m"] = np.zeros(3, np.float32)
    notes = convert(write_original(tmp_path / "original", tensors), tmp_path / "model")
    assert "left out, as pre-training has no such tensors: electra/junk/adam_m" in notes


def test_wrong_vocabulary_size_is_refused(tmp_path):
    source = write_original(tmp_path / "original", golden_tensors("sdconv"), vocab_size=96)
    expected = r"vocab\.txt should hold 97 tokens, as electra/embeddings/word_embeddings in .*: 96"
    with pytest.raises(InputError, match=expected):
        convert(source, tmp_path / "model")
    assert os.listdir(tmp_path) == ["original"]


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").write_text("mine")
    with pytest.raises(InputError, match="should not exist yet, or be an empty folder"):
        convert(GOLDEN / "sdconv", tmp_path / "model")
    assert os.listdir(tmp_path / "model") == ["mine"]

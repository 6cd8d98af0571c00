"""Activations and the epsilon of layer norms, against their formulas in NumPy."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.model import MaskedLMHead, build_backbone
from convbert.model.encoder import EncoderLayer
from convbert.model.layers import LayerNorm, dense
from tests.model_support import TINY, normal, random_features, randomize

FORMULAS = {
    "gelu": lambda x: x * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(x),
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}
PLACES = np.linspace(-5, 5, 201, dtype=np.float32)  # where gelu and gelu_new differ by up to 5e-4


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    """In a graph products and activations may be fused."""
    layer, expected = dense(TINY, len(PLACES), "dense", name), FORMULAS[name](np.float64(PLACES))
    layer.build([None, None, 4])
    layer.set_weights([np.zeros([4, len(PLACES)]), PLACES])  # whatever comes in
    for training, length in ((True, 3), (False, 3), (False, None)):
        spec = tf.TensorSpec([2, length, 4])
        traced = tf.function(lambda x, t=training: layer(x, training=t), input_signature=[spec])
        outputs = traced(normal(2, 3, 4)).numpy()
        np.testing.assert_allclose(outputs[1, 2], expected, rtol=0, atol=2e-6)


def test_every_part_uses_the_activation():
    """Feed-forward blocks and both heads; a head may have another one than the encoder."""
    for name in ("gelu", "gelu_new"):
        config = TINY.replace(hidden_act=name)
        layer, encoder = EncoderLayer(config), build_backbone(config)
        formula = layer.intermediate.activation
        np.testing.assert_allclose(formula(PLACES), FORMULAS[name](PLACES), rtol=0, atol=2e-6)
        head = MaskedLMHead(config, encoder.embeddings)
        np.testing.assert_array_equal(head.transform.activation(PLACES), formula(PLACES))
    other = MaskedLMHead(TINY, encoder.embeddings, activation="silu").transform.activation
    np.testing.assert_allclose(other(PLACES), FORMULAS["silu"](PLACES), rtol=0, atol=2e-6)


def test_every_norm_has_the_epsilon():
    encoder = build_backbone(TINY.replace(layer_norm_eps=1e-5))
    head = MaskedLMHead(encoder.config, encoder.embeddings)
    norms = [part for part in (*encoder.submodules, *head.submodules) if type(part) is LayerNorm]
    assert len(norms) >= 2 * TINY.num_hidden_layers + 2
    assert {norm.epsilon for norm in norms} == {1e-5}


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_a_padded_head_predicts_pieces_only(precision):
    """Padding changes no logit of a piece, and padding rows get no gradient."""
    tf_keras.mixed_precision.set_global_policy(precision)
    encoder = build_backbone(TINY)
    whole, padded = (MaskedLMHead(TINY, encoder.embeddings, pieces=n) for n in (None, 28))
    hidden = encoder(random_features(2, 5)).sequence
    positions = tf.constant([[1, 3], [0, 4]])
    for head in (whole, padded):
        head(hidden, positions)
    randomize(whole)
    padded.set_weights(whole.get_weights())
    with tf.GradientTape() as tape:
        tape.watch(encoder.embeddings.word_embeddings)
        logits = padded(hidden, positions)
        total = tf.reduce_sum(logits**2)
    assert logits.shape == [2, 2, 28]
    np.testing.assert_allclose(logits, whole(hidden, positions)[..., :28], rtol=1e-5, atol=1e-5)
    to_table = tape.gradient(total, encoder.embeddings.word_embeddings)
    assert not np.any(to_table[28:])
    assert np.all(np.any(to_table[:28], axis=-1))

"""Layers as functions that share a graph: what they compute, and how much of it is in a graph."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from model import build_encoder
from model.backbone import rematerialize
from model.layer_function import FEW_STEPS, starting_soon
from tests.model_support import TINY, randomize

SEED = tf.constant([3, 5])
LENGTH = 6
BATCH = {
    "input_ids": tf.reshape(tf.range(1, 2 * LENGTH + 1), [2, LENGTH]),
    "input_mask": tf.constant([[1] * LENGTH, [1] * (LENGTH - 2) + [0] * 2]),
}
CONFIGS = {
    "mixed": TINY.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1),
    "padding masked": TINY.replace(mask_padding=True),
    "causal": TINY.replace(causal=True, mask_padding=False),
    "attention": TINY.replace(token_mixer="attention"),
    "grouped": TINY.replace(linear_groups=2),
    "shared": TINY.replace(share_layers=True),
}


def traced(encoder, steps):
    """A step's values and gradients as a graph, as a run of so many steps has it."""
    weights = encoder.trainable_variables

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            output = encoder(BATCH, training=True, seed=SEED)
            loss = tf.reduce_sum(tf.sin(tf.cast(output.sequence, tf.float32)))
        return output.hidden_states, tape.gradient(loss, weights)

    with starting_soon(steps):
        return step.get_concrete_function()


@pytest.fixture(params=["written out", "rematerialized"])
def keep(request):
    return rematerialize if request.param == "rematerialized" else lambda encoder: None


@pytest.mark.parametrize("name", CONFIGS)
def test_values_and_gradients_are_those_of_the_layers(name, keep):
    tf_keras.utils.set_random_seed(0)
    encoder = build_encoder(CONFIGS[name])
    randomize(encoder)
    keep(encoder)
    expected, functions = (traced(encoder, steps)() for steps in (FEW_STEPS + 1, FEW_STEPS))
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(functions), strict=True):
        one, other = (tf.convert_to_tensor(value).numpy() for value in (one, other))
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5 * max(1, np.abs(one).max()))


def test_values_are_those_of_the_layers_in_bfloat16():
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        encoder = build_encoder(CONFIGS["mixed"])
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    (*_, expected), (*_, last) = (traced(encoder, n)()[0] for n in (FEW_STEPS + 1, FEW_STEPS))
    assert last.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(last, tf.float32), tf.cast(expected, tf.float32), atol=0.02)


def test_more_layers_are_more_calls_alone():
    """With functions, a layer adds its weights and two calls; written out, all its operations."""

    def operations(layers, steps):
        encoder = build_encoder(CONFIGS["mixed"].replace(num_hidden_layers=layers))
        return len(traced(encoder, steps).graph.get_operations())

    added = {n: operations(6, n) - operations(5, n) for n in (FEW_STEPS, FEW_STEPS + 1)}
    weights = len(build_encoder(CONFIGS["mixed"]).encoder_layers[0].trainable_variables)
    assert added[FEW_STEPS] <= 2 * weights + 20  # a placeholder and a read of each
    assert added[FEW_STEPS + 1] > 300

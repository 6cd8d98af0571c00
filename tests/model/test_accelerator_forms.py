"""The forms that are for GPUs and TPUs give the values and gradients of those for CPUs."""

import numpy as np
import pytest
import tensorflow as tf

from model import EncoderConfig, build_encoder
from model.kernels import for_accelerator
from pretrain import vocabulary_softmax
from tests.model_support import randomize
from training.randomness import inverse_cdf

CONFIG = EncoderConfig(
    vocab_size=50,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=32,
    conv_kernel_size=3,
    linear_groups=2,
)
CASES = {
    "mixed": (CONFIG, False),
    "rematerialized": (CONFIG, True),
    "shared": (CONFIG.replace(token_mixer="attention", head_ratio=1, share_layers=True), False),
}


def loops(function):
    """How many loops there are in the graph of a function."""
    operations = function.get_concrete_function().graph.get_operations()
    return sum(operation.type in ("While", "StatelessWhile") for operation in operations)


@pytest.mark.parametrize(
    "case",
    [
        "mixed",
        *(pytest.param(case, marks=pytest.mark.slow) for case in ("rematerialized", "shared")),
    ],
)
def test_layers_in_a_loop(case):
    config, rematerialize = CASES[case]
    encoder = build_encoder(config)
    randomize(encoder, scale=0.1)
    encoder.rematerialize = rematerialize
    ids = tf.random.stateless_uniform([3, 6], [1, 2], 0, 50, tf.int32)
    features = {"input_ids": ids, "input_mask": tf.sequence_mask([6, 4, 5], 6, tf.int32)}

    def train(**options):
        with tf.GradientTape() as tape:
            output = encoder(features, training=True, seed=tf.constant([3, 4, 1]), **options)
            states = (tf.sin(output.sequence), tf.cos(output.hidden_states[0]))
            loss = sum(map(tf.reduce_sum, states))
        return [*output.hidden_states, *tape.gradient(loss, encoder.trainable_variables)]

    unrolled = tf.function(train)
    assert loops(unrolled) == 0
    expected = unrolled()
    with for_accelerator():
        looped = tf.function(train)
        found = looped()
        assert loops(looped) == 2
        assert loops(tf.function(lambda: train(output_attentions=True))) == 0
    with for_accelerator("gpu"):
        assert loops(tf.function(train)) == 0
    for one, other in zip(found, expected, strict=True):
        one, other = tf.convert_to_tensor(one), tf.convert_to_tensor(other)
        scale = max(1.0, float(tf.reduce_max(tf.abs(other))))
        np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=2e-6)


def test_vocabulary_softmax():
    """Losses, their gradient, predictions and the very tokens that are drawn."""
    B, P, V = 4, 5, 700
    logits = tf.random.stateless_normal([B, P, V], [1, 2], stddev=2.0)
    ids = tf.random.stateless_uniform([B, P], [3, 4], 0, V, tf.int32)
    noise = tf.random.stateless_uniform([B, P, 2], [5, 6])

    def everything():
        with tf.GradientTape() as tape:
            tape.watch(logits)
            softmax = vocabulary_softmax.unnormalized_softmax(logits)
            entropy = vocabulary_softmax.cross_entropy(logits, softmax, ids)
        drawn = vocabulary_softmax.sample_tokens(softmax, noise, V)
        predicted = vocabulary_softmax.most_likely(logits)
        return softmax, entropy, tape.gradient(entropy, logits), drawn, predicted

    blocks, *expected = tf.function(everything)()
    with for_accelerator():
        flat, *found = tf.function(everything)()
    assert (blocks.shape.rank, flat.shape.rank) == (4, 2)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)


def test_inverse_cdf():
    weights = tf.random.stateless_uniform([300, 90], [1, 2])
    weights = tf.where(weights < 0.3, 0.0, weights)
    noise = tf.random.stateless_uniform([300], [3, 4])
    expected = inverse_cdf(weights, noise)
    with for_accelerator():
        found = inverse_cdf(weights, noise)
    np.testing.assert_array_equal(found, expected)
    assert tf.reduce_min(tf.gather(weights, found, batch_dims=1)) > 0

"""The forms that are for GPUs and TPUs give the values and gradients of those for CPUs."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.common.backend import for_accelerator
from convbert.model.kernels import add_and_norm, convolution, lightweight_conv, project, projection
from convbert.pretrain import vocabulary_softmax
from convbert.training.randomness import inverse_cdf


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


def assert_same_with_gradients(function, *inputs, tolerance=1e-5):
    """A function's value and its gradients by all inputs, built for a CPU and for a TPU."""

    def everything():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = tf.cast(function(*inputs), tf.float32)
            total = tf.reduce_sum(output * tf.random.stateless_normal(output.shape, [9, 9]))
        return [tf.cast(x, tf.float32) for x in (output, *tape.gradient(total, inputs))]

    expected = everything()
    with for_accelerator():
        found = everything()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("padding", ["same", "causal"])
@pytest.mark.parametrize(
    ("S", "K", "dtype"),
    [*((S, K, "float32") for S, K in ((1, 9), (7, 5), (40, 9), (520, 3))), (40, 9, "bfloat16")],
)
def test_lightweight_conv(S, K, dtype, padding, monkeypatch):
    """As a product with a band, and beyond its longest sequence."""
    bands, form = [], convolution._as_band
    monkeypatch.setattr(convolution, "_as_band", lambda *x: bands.append(S) or form(*x))
    values = tf.cast(tf.random.stateless_normal([2, S, 6], [1, 2]), dtype)
    logits = tf.cast(tf.random.stateless_normal([2, S, 2 * K], [3, 4]), dtype)
    tolerance = 1e-5 if dtype == "float32" else 3e-2
    function = partial(lightweight_conv, num_heads=2, padding=padding)
    assert_same_with_gradients(function, values, logits, tolerance=tolerance)
    assert bands == [S][: S <= convolution.LONGEST_BAND]


def test_lightweight_conv_of_unknown_length():
    values, logits = (tf.random.stateless_normal([2, 7, 18], [1, i]) for i in range(2))
    shape = tf.TensorSpec([None, None, 18])
    with for_accelerator():
        function = tf.function(lambda v, x: lightweight_conv(v, x, 2)).get_concrete_function
        found = function(shape, shape)(values, logits)
    np.testing.assert_allclose(found, lightweight_conv(values, logits, 2), rtol=1e-5, atol=1e-5)


@pytest.mark.bfloat16
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_add_and_norm(offset):
    """With both statistics in one pass, also where the mean is larger than the deviation."""
    inputs, residual = (tf.random.stateless_normal([4, 8, 64], [1, i]) for i in range(2))
    inputs, residual = (tf.cast(x, tf.bfloat16) for x in (inputs, residual + offset))
    gamma, beta = (tf.random.stateless_normal([64], [2, i]) for i in range(2))

    def function(*tensors):
        return add_and_norm(*tensors, 1e-12)

    assert_same_with_gradients(function, inputs, residual, gamma, beta, tolerance=3e-2)
    with for_accelerator():
        graph = tf.function(function).get_concrete_function(inputs, residual, gamma, beta).graph
    assert "Maximum" in {operation.type for operation in graph.get_operations()}


@pytest.mark.parametrize("use_bias", [True, False])
def test_project(use_bias, monkeypatch):
    given, form = [], projection.affine
    monkeypatch.setattr(projection, "affine", lambda *x: given.append(x[2]) or form(*x))
    layers = [tf_keras.layers.Dense(n, use_bias=use_bias, bias_initializer="ones") for n in (3, 5)]
    for layer in layers:
        layer.build([None, 4])
    inputs = tf.random.stateless_normal([2, 7, 4], [1, 2])
    weights = [variable for layer in layers for variable in layer.trainable_variables]
    assert_same_with_gradients(
        lambda inputs, *_: tf.concat(project(inputs, [None, *layers], True)[1:], -1),
        inputs,
        *weights,
    )
    assert [bias is None for bias in given] == [not use_bias, True]

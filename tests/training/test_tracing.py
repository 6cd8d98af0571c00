"""Graphs do not outlive their use."""

import gc
import weakref

import tensorflow as tf

from convbert.model.kernels import gelu
from convbert.training.tracing import plain_function, temporary_graphs


def traced():
    """A function of `gelu`, whose gradient is a custom one, and a reference to its graph."""
    function = plain_function(lambda x: gelu(x) * 2.0, input_signature=[tf.TensorSpec([3])])
    return function, weakref.ref(function.get_concrete_function().graph)


def slope(function):
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


def test_graphs_are_freed():
    """And those from before keep their gradients."""
    older, _ = traced()
    with temporary_graphs():
        function, graph = traced()
        assert slope(function).shape == [3]
    assert graph() is not None  # that of a function which is still there
    del function
    gc.collect()
    assert graph() is None
    assert slope(older).shape == [3]

"""Tracing of Python functions, and the lifetime of graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.python.framework import ops


def plain_function(function: Callable, **options) -> tf.types.experimental.PolymorphicFunction:
    """`tf.function` without AutoGraph, which takes a third of the time of tracing a model.

    Neither the function nor those that it calls have tensor-dependent `if`s or loops.
    """
    # With only `autograph=False`, Keras would still convert each layer's `call`.
    function = tf.autograph.experimental.do_not_convert(function)
    return tf.function(function, autograph=False, **options)


@contextlib.contextmanager
def temporary_graphs() -> Iterator[None]:
    """Allows graphs built within to be freed once nothing of ours refers to them.

    TensorFlow permanently registers the gradient of each `tf.custom_gradient` call in a graph, and
    with it the graph: about 100 MB for the training step of a small model, so a sweep would fill
    the memory. After the block, gradients of functions traced within can no longer be computed;
    existing ones remain valid. Graphs refer to themselves, so only `gc.collect` frees them, which
    takes a second.
    """
    registered = ops.gradient_registry._registry  # has no public method to remove entries
    before = set(registered)
    try:
        yield
    finally:
        added = {name for name in set(registered) - before if name.startswith("CustomGradient-")}
        for name in added:
            del registered[name]

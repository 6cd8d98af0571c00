"""How Python becomes a graph, and how long graphs stay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.python.framework import ops


def plain_function(function: Callable, **options) -> tf.types.experimental.PolymorphicFunction:
    """`tf.function` without AutoGraph, which takes a third of the time of tracing a model.

    Args:
        function: has no Python `if` or loop that depends on a tensor, nor has what it calls.
    """
    # The option `autograph` alone would let Keras still convert each layer's `call`.
    function = tf.autograph.experimental.do_not_convert(function)
    return tf.function(function, autograph=False, **options)


@contextlib.contextmanager
def temporary_graphs() -> Iterator[None]:
    """Graphs that are built within can be freed afterwards, when nothing of ours refers to them.

    TensorFlow registers the gradient of each call of a `tf.custom_gradient` in a graph for good,
    and with it the graph: about 100 MB for the training step of a small model, so that a sweep's
    runs would fill the memory. Afterwards, gradients of functions that were traced within can no
    longer be taken; those that were taken remain. Graphs refer to themselves, so that it is
    `gc.collect` that frees them, which takes a second.
    """
    registered = ops.gradient_registry._registry  # has no public way to forget
    before = set(registered)
    try:
        yield
    finally:
        added = {name for name in set(registered) - before if name.startswith("CustomGradient-")}
        for name in added:
            del registered[name]

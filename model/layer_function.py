"""An encoder's layers as calls of one function, so that the graph of a step holds one layer.

Tracing, optimizing and placing an operation takes a CPU half a millisecond, and the step of a small
ConvBERT, whose generator has layers as well, has 20,000. Calls of one function make that a third,
and each step 2 to 3 % slower. Values and gradients are those of the layers.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
import tf_keras

from model.kernels import running_on_cpu_only
from model.layer_weights import layer_weights, substituted

# The 5 s that ConvBERT-small starts sooner are lost again after 130 steps of batches of 32 x 128,
# after 350 of 8 x 128.
FEW_STEPS = 200

_NOT_INLINED = {"_noinline": True}  # or its copies would be optimized one by one
_starts_soon = contextvars.ContextVar("starts_soon", default=False)


def starts_soon(steps: int) -> bool:
    """Whether a run of so many steps is short enough for functions to be worth their time."""
    return steps <= FEW_STEPS


@contextlib.contextmanager
def starting_soon(steps: int) -> Iterator[None]:
    """Training steps of one device that are traced within start soon, if a run has few of them."""
    token = _starts_soon.set(starts_soon(steps))
    try:
        yield
    finally:
        _starts_soon.reset(token)


def as_functions(layers: Sequence[tf_keras.layers.Layer]) -> list[Callable]:
    """What to call in place of layers in training: on CPUs, functions that share one graph.

    Args:
        layers: of the same structure.

    Returns:
        For each layer a function of the same arguments and results, of which all but the first are
        None. The layers themselves eagerly, on other devices, and outside of `starting_soon`.
    """
    built = all(layer.built for layer in layers)
    if not (_starts_soon.get() and running_on_cpu_only() and built) or tf.executing_eagerly():
        return list(layers)

    def train(hidden, bias, padding_mask, seeds, *weights):
        bias = tf.stop_gradient(bias)  # or its gradient would be computed, as would the mask's
        if padding_mask is not None:
            padding_mask = tf.stop_gradient(padding_mask)
        with substituted(layers[0], weights):
            return layers[0](hidden, bias, padding_mask, training=True, seeds=seeds)[0]

    train = tf.autograph.experimental.do_not_convert(train)
    shared = tf.function(train, autograph=False, experimental_attributes=_NOT_INLINED)

    def calling(layer):
        def call(hidden, bias, padding_mask, training=True, seeds=(None, None, None)):
            return shared(hidden, bias, padding_mask, seeds, *layer_weights(layer)), None, None

        return call

    return [calling(layer) for layer in layers]

"""A layer's weights as tensors, so that one graph of a layer serves all of the same structure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf
import tf_keras

from model.layers import LayerNorm


def _places(layer: tf_keras.layers.Layer) -> list[tuple[tf_keras.layers.Layer, str]]:
    """Where the weights are, in an order that layers of the same structure share."""
    return [
        (part, name)
        for part in (layer, *layer.submodules)
        for name, value in sorted(vars(part).items())
        if isinstance(value, tf.Variable)
    ]


def layer_weights(layer: tf_keras.layers.Layer) -> list[tf.Tensor]:
    """The weights as the layer reads them: in the dtype it computes in."""
    return [
        tf.convert_to_tensor(value)
        if isinstance(part, LayerNorm)
        else tf.cast(value, part.compute_dtype)
        for part, name in _places(layer)
        for value in [vars(part)[name]]
    ]


@contextlib.contextmanager
def substituted(layer: tf_keras.layers.Layer, tensors: Sequence[tf.Tensor]) -> Iterator[None]:
    """Within, the layer reads `tensors` in place of its weights."""
    places = _places(layer)
    variables = [vars(part)[name] for part, name in places]
    try:
        for (part, name), tensor in zip(places, tensors, strict=True):
            vars(part)[name] = tensor
        yield
    finally:
        for (part, name), variable in zip(places, variables, strict=True):
            vars(part)[name] = variable

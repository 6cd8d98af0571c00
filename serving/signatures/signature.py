"""A signature of a SavedModel: inputs, outputs and graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from convbert.model.kernels import without_gradients
from convbert.training.tracing import plain_function

Tensors = dict[str, tf.Tensor]
FEATURES = ("input_ids", "input_mask", "segment_ids")  # of sequences, int32 [n, S] each


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or an output; docs/serving.md describes all of them.

    Axes are one letter each: B batch, S tokens, D hidden, L labels, W words, M masks, C options, N
    candidates of a query, K candidates or beam.
    """

    dtype: str
    axes: str
    default: float | int | None = None  # of an optional input, a number per text


TEXT, TRUNCATED = Tensor("string", "B"), Tensor("bool", "B")


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature of a SavedModel.

    `function` maps inputs by position to outputs by name. Strings are valid UTF-8. The first axis
    of every output is the batch, as TensorFlow Serving's REST interface requires.
    """

    about: str  # in one line
    function: Callable[..., Tensors]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]

    def to_json(self) -> dict[str, Any]:
        """Returns the description in model.json."""
        return {
            "about": self.about,
            "inputs": {name: dataclasses.asdict(own) for name, own in self.inputs.items()},
            "outputs": {name: dataclasses.asdict(own) for name, own in self.outputs.items()},
        }

    @without_gradients()
    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """Traces the graph for any batch size and length; ValueError if outputs differ."""
        specs = [tf.TensorSpec([None] * len(x.axes), x.dtype, n) for n, x in self.inputs.items()]
        traced = plain_function(self._checked, input_signature=specs).get_concrete_function()
        outputs = traced.structured_outputs.items()
        found = {name: (value.dtype.name, value.shape.rank) for name, value in outputs}
        expected = {name: (item.dtype, len(item.axes)) for name, item in self.outputs.items()}
        if found != expected:
            raise ValueError(f"outputs should be {expected}. Received: {found}")
        return traced

    def _checked(self, *inputs: tf.Tensor) -> Tensors:
        """Calls the function after checking ranks and batch sizes, naming invalid inputs."""
        pairs = zip(inputs, self.inputs.items())
        values = [_of_declared_rank(value, name, item.axes) for value, (name, item) in pairs]
        sizes = [tf.shape(value)[0] for value in values]
        expected = f"{', '.join(f'`{name}`' for name in self.inputs)} should be of one batch."
        same = [tf.debugging.assert_equal(size, sizes[0], expected) for size in sizes[1:]]
        with tf.control_dependencies(same):
            valid = [valid_utf8(x) if x.dtype == tf.string else tf.identity(x) for x in values]
            answers = self.function(*valid)
        # Without the kernels' gradients, those of the graph would be wrong: there are none.
        return {name: tf.stop_gradient(value) for name, value in answers.items()}


def valid_utf8(text: tf.Tensor) -> tf.Tensor:
    """Replaces bytes that are not UTF-8 by U+FFFD, as Python's "replace".

    Later ops are undefined for such bytes. U+FFFD is removed before tokenization.
    """
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def _of_declared_rank(value: tf.Tensor, name: str, axes: str) -> tf.Tensor:
    """Returns an input with the rank that its signature declares; a scalar is a batch of one.

    Any other rank raises InvalidArgumentError in the graph. Nothing checks ranks before the graph,
    and the tokenizer's kernel reads past the end of a tensor of another rank. The graph optimizer
    assumes the declared rank: it replaces `tf.rank` by a constant and `tf.reshape` by a copy, but
    does not change the result of `tf.where`.
    """
    shape = tf.shape(value)
    shape = tf.gather(shape, tf.where(shape >= 0)[:, 0])  # all of it, with its length at run time
    rank, one_axis = tf.size(shape), len(axes) == 1
    allowed = rank <= 1 if one_axis else tf.equal(rank, len(axes))
    expected = f"`{name}` should have the shape [{', '.join(axes)}]. Received the shape:"
    check = tf.debugging.Assert(allowed, [expected, shape], summarize=9)
    with tf.control_dependencies([check]):
        missing = tf.ones([tf.maximum(len(axes) - rank, 0)], tf.int32)
        value = tf.reshape(value, tf.concat([missing, shape], 0))
    value.set_shape([None] * len(axes))
    return value

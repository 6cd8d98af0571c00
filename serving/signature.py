"""One thing that a SavedModel can be asked: its inputs, its outputs and its graph."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import tensorflow as tf

from training.tracing import plain_function

Tensors = dict[str, tf.Tensor]

# How inputs and outputs of several signatures are described: dtype, shape, meaning. Axis letters: B
# batch, S tokens, D hidden, L labels, W words, M masked places, K candidates or beam.
TEXT = "string [B], UTF-8; bytes that are not are left out"
TRUNCATED = "bool [B], whether the text was too long for one row, and so was cut"
PIECES = 'string [B, S], word pieces with [CLS] and [SEP]; "" after the last'
NUM_PIECES = "int32 [B], the number of `pieces`"

_DESCRIPTION = re.compile(r"(\w+) \[([A-Z](?:, [A-Z])*)\], ")


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature of a SavedModel.

    Attributes:
        about: what it does, in one line.
        function: from the inputs, by position, to the outputs by name. Every output has the batch
            as its first axis, as rows of TensorFlow Serving's REST interface need it.
        inputs: name -> description, such as `TEXT`.
        outputs: name -> description.
    """

    about: str
    function: Callable[..., Tensors]
    inputs: dict[str, str]
    outputs: dict[str, str]

    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """The graph for any batch size and lengths.

        Raises:
            ValueError: the outputs are not as described.
        """
        specs = []
        for name, description in self.inputs.items():
            dtype, axes = described(description)
            specs.append(tf.TensorSpec([None] * len(axes), dtype, name))
        traced = plain_function(self._checked, input_signature=specs).get_concrete_function()
        found = {
            name: (value.dtype.name, value.shape.rank)
            for name, value in traced.structured_outputs.items()
        }
        expected = {}
        for name, description in self.outputs.items():
            dtype, axes = described(description)
            expected[name] = (dtype, len(axes))
        if found != expected:
            raise ValueError(f"outputs should be {expected}. Received: {found}")
        return traced

    def _checked(self, *inputs: tf.Tensor) -> Tensors:
        """The function, of inputs that are rejected by name for their rank or for their batch."""
        inputs = [
            _of_declared_rank(value, name, described(description)[1])
            for value, (name, description) in zip(inputs, self.inputs.items())
        ]
        rows = [tf.shape(value)[0] for value in inputs]
        expected = f"{', '.join(f'`{name}`' for name in self.inputs)} should be of one batch."
        same = [tf.debugging.assert_equal(count, rows[0], expected) for count in rows[1:]]
        with tf.control_dependencies(same):
            return self.function(*(tf.identity(value) for value in inputs))


def _of_declared_rank(value: tf.Tensor, name: str, axes: list[str]) -> tf.Tensor:
    """An input of the rank that its signature declares; a scalar is a batch of one text.

    Nothing between a request and the graph compares ranks, and the tokenizer's kernel reads past
    the end of a tensor of another rank. The graph optimizer takes the declared rank for granted and
    makes a constant of `tf.rank`, and a copy of `tf.reshape`, but not of what `tf.where` finds.

    Raises (in the graph):
        InvalidArgumentError: any other rank; names the input.
    """
    shape = tf.shape(value)
    shape = tf.gather(shape, tf.where(shape >= 0)[:, 0])  # all of it, at its length when executed
    rank, one_axis = tf.size(shape), len(axes) == 1
    allowed = rank <= 1 if one_axis else tf.equal(rank, len(axes))
    expected = f"`{name}` should have the shape [{', '.join(axes)}]. Received the shape:"
    check = tf.debugging.Assert(allowed, [expected, shape], summarize=9)
    with tf.control_dependencies([check]):
        missing = tf.ones([tf.maximum(len(axes) - rank, 0)], tf.int32)
        value = tf.reshape(value, tf.concat([missing, shape], 0))
    value.set_shape([None] * len(axes))
    return value


def described(description: str) -> tuple[str, list[str]]:
    """The dtype and the axis letters that a description begins with."""
    dtype, axes = _DESCRIPTION.match(description).groups()
    return dtype, axes.split(", ")

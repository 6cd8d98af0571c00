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
        """The function, of inputs that are refused by name where they have different batches."""
        rows = [tf.shape(value)[0] for value in inputs]
        expected = f"{', '.join(f'`{name}`' for name in self.inputs)} should be of one batch."
        same = [tf.debugging.assert_equal(count, rows[0], expected) for count in rows[1:]]
        with tf.control_dependencies(same):
            return self.function(*(tf.identity(value) for value in inputs))


def described(description: str) -> tuple[str, list[str]]:
    """The dtype and the axis letters that a description begins with."""
    dtype, axes = _DESCRIPTION.match(description).groups()
    return dtype, axes.split(", ")

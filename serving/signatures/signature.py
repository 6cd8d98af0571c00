"""One thing that a SavedModel can be asked: its inputs, its outputs and its graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from convbert.training.tracing import plain_function

Tensors = dict[str, tf.Tensor]
FEATURES = ("input_ids", "input_mask", "segment_ids")  # of sequences, int32 [n, S] each


class Tensor(NamedTuple):
    """An input or an output; docs/serving.md says what each means.

    Attributes:
        dtype: its name.
        axes: a letter each: B batch, S tokens, D hidden, L labels, W words, M masked places, C
            options, K candidates or beam.
        default: of an input that clients need not name, a number for every text.
    """

    dtype: str
    axes: str
    default: float | int | None = None


TEXT, TRUNCATED = Tensor("string", "B"), Tensor("bool", "B")


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature of a SavedModel.

    Attributes:
        about: what it does, in one line.
        function: from the inputs, by position, to the outputs by name. Strings reach it as valid
            UTF-8. Every output has the batch as its first axis, as TensorFlow Serving's REST
            interface needs it.
    """

    about: str
    function: Callable[..., Tensors]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]

    def to_json(self) -> dict[str, Any]:
        """The description in model.json."""
        sides = {"inputs": self.inputs, "outputs": self.outputs}
        found = {side: {n: own._asdict() for n, own in all.items()} for side, all in sides.items()}
        return {"about": self.about, **found}

    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """The graph for any batch size and lengths; ValueError for outputs not as described."""
        specs = [
            tf.TensorSpec([None] * len(item.axes), item.dtype, name)
            for name, item in self.inputs.items()
        ]
        traced = plain_function(self._checked, input_signature=specs).get_concrete_function()
        found = {
            name: (value.dtype.name, value.shape.rank)
            for name, value in traced.structured_outputs.items()
        }
        expected = {name: (item.dtype, len(item.axes)) for name, item in self.outputs.items()}
        if found != expected:
            raise ValueError(f"outputs should be {expected}. Received: {found}")
        return traced

    def _checked(self, *inputs: tf.Tensor) -> Tensors:
        """The function, of inputs that are rejected by name for their rank or for their batch."""
        values = [
            _of_declared_rank(value, name, item.axes)
            for value, (name, item) in zip(inputs, self.inputs.items())
        ]
        sizes = [tf.shape(value)[0] for value in values]
        expected = f"{', '.join(f'`{name}`' for name in self.inputs)} should be of one batch."
        same = [tf.debugging.assert_equal(size, sizes[0], expected) for size in sizes[1:]]
        with tf.control_dependencies(same):
            return self.function(
                *(valid_utf8(x) if x.dtype == tf.string else tf.identity(x) for x in values)
            )


def valid_utf8(text: tf.Tensor) -> tf.Tensor:
    """The text with U+FFFD in place of bytes that are not UTF-8, as Python's "replace" has it.

    The ops that follow are undefined on such bytes. U+FFFD is removed before tokenization.
    """
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def _of_declared_rank(value: tf.Tensor, name: str, axes: str) -> tf.Tensor:
    """An input of the rank that its signature declares; a scalar is a batch of one text.

    Any other rank raises InvalidArgumentError in the graph. Nothing between a request and the graph
    compares ranks, and the tokenizer's kernel reads past the end of a tensor of another rank. The
    graph optimizer takes the declared rank for granted and makes a constant of `tf.rank`, and a
    copy of `tf.reshape`, but not of what `tf.where` finds.
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

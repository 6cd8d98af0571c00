"""Requests of any size, split by length inside the graph to bound memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import tensorflow as tf

from convbert.serving.signatures.signature import FEATURES, Tensors
from convbert.training.tracing import plain_function

# Maximum tokens of a part, including padding, unless a single sequence is longer. On two CPU cores,
# half and twice this took the same time for 1,000 mixed texts, a quarter took a fifth more.
TOKENS_PER_PART = 4096
_SMALL_PART = 512
SEQUENCES = {name: tf.TensorSpec([None, None], tf.int32, name) for name in FEATURES}


class InParts:
    """Applies a function to any number of sequences, in parts one after the other.

    A request beyond `budget` is sorted by length and split; each part is padded to its longest
    sequence. Outputs are in the order of the request.

    Args:
        function: maps features to outputs [n, ...]; n may be 0.
        budget: maximum of n * S in a part.
        inputs: its features; those of [n, S] are cut to their part's length.
        max_padding: maximum share of padding in a part's tokens, beyond `_SMALL_PART`.
    """

    def __init__(
        self,
        function: Callable[[Tensors], Tensors],
        budget: int = TOKENS_PER_PART,
        inputs: Mapping[str, tf.TensorSpec] = SEQUENCES,
        max_padding: float = math.inf,
    ):
        traced = plain_function(function, input_signature=[dict(inputs)])
        self._function = lambda features: traced({name: features[name] for name in inputs})
        self._inputs, self._max_padding = inputs, max_padding
        self._specs = traced.get_concrete_function().structured_outputs
        self._budget = budget

    def __call__(
        self,
        features: Tensors,
        lengths: tf.Tensor | None = None,
        widths: dict[str, tf.Tensor] | None = None,
    ) -> Tensors:
        """Returns the outputs [B, ...] for features [B, S] or [B].

        They depend on the first `lengths` [B] tokens, by default all. `widths` has the size of the
        second axis of outputs where it differs between parts.
        """
        if lengths is None:
            B, S = tf.unstack(tf.shape(features["input_ids"]))
            lengths = tf.fill([B], S)
        lengths = tf.cast(lengths, tf.int64)
        size = tf.size(lengths, tf.int64) * tf.reduce_max(tf.concat([[0], lengths], 0))
        # A separate call, or its operations would cost small requests a twelfth of their time.
        divided = plain_function(self._divided, experimental_attributes={"_noinline": True})
        outputs = tf.cond(
            tf.less_equal(size, self._budget),
            lambda: self._function(features),
            lambda: divided(features, lengths, widths or {}),
        )
        # A call loses the static shape, which the graph optimizer needs.
        shapes = {name: _any_batch(spec) for name, spec in self._specs.items()}
        return {name: tf.ensure_shape(value, shapes[name]) for name, value in outputs.items()}

    def _divided(self, features: Tensors, lengths: tf.Tensor, widths: dict[str, tf.Tensor]):
        """Runs `__call__` for at least one sequence, in parts."""
        order = tf.argsort(lengths, stable=True)
        lengths = tf.gather(lengths, order)
        B = tf.size(lengths)

        def step(number, start, found):
            places = tf.range(1, B - start + 1, dtype=tf.int64)
            size = places * lengths[start:]
            fits = size <= self._budget
            if self._max_padding < math.inf:
                tokens = tf.cast(tf.cumsum(lengths[start:]), tf.float32)
                most = tf.cast(tokens * (1.0 + self._max_padding), tf.int64)
                fits &= size <= tf.maximum(most, _SMALL_PART)
            ends = tf.argmin(tf.pad(tf.cast(fits, tf.int32), [[0, 1]]), output_type=tf.int32)
            end = start + tf.maximum(1, ends)
            chosen, longest = order[start:end], lengths[end - 1]
            part = {name: tf.gather(features[name], chosen) for name in self._inputs}
            for name, spec in self._inputs.items():
                part[name] = part[name][:, :longest] if spec.shape.rank == 2 else part[name]
            outputs = self._function(part)
            for name, width in widths.items():
                outputs[name] = _padded(outputs[name], width)
            found = {name: found[name].write(number, outputs[name]) for name in found}
            return number + 1, end, found

        settings = {"size": 0, "dynamic_size": True, "infer_shape": False}
        arrays = {
            name: tf.TensorArray(spec.dtype, element_shape=_any_batch(spec), **settings)
            for name, spec in self._specs.items()
        }
        _, _, found = tf.while_loop(
            lambda number, start, found: start < B, step, (0, 0, arrays), parallel_iterations=1
        )
        back = tf.math.invert_permutation(order)
        return {name: tf.gather(array.concat(), back) for name, array in found.items()}


def _any_batch(spec: tf.TensorSpec) -> tf.TensorShape:
    return tf.TensorShape([None]).concatenate(spec.shape[1:])


def _padded(value: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Pads [n, W, ...] with zeros or empty strings to [n, width, ...]."""
    missing = tf.cast(width, tf.int32) - tf.shape(value)[1]
    paddings = tf.scatter_nd([[1, 1]], [missing], [value.shape.rank, 2])
    empty = "" if value.dtype == tf.string else tf.zeros([], value.dtype)
    return tf.pad(value, paddings, constant_values=empty)

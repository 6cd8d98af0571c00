"""Fusion: which chains of elementwise operations XLA compiles into one pass, and when.

Matrix products run at the machine's limit by themselves. What lies between them is bound by memory:
op by op, each step reads and writes a whole tensor.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator

import tensorflow as tf

from convbert.common.backend import on_tpu, running_on_cpu_only

# Below this many elements compiling takes longer than a small model's whole training gains by it.
SMALLEST_FUSED = 2**18
UNKNOWN_LENGTH = 32  # what a dimension known only at run time counts as, against that
LONGEST_SUM = 32  # that XLA fuses, on a CPU, with what it sums


def fused(function: Callable | None = None, *, sooner: int = 1) -> Callable:
    """Compiles `function` where the shapes of its tensors are known when a graph is built.

    Elsewhere (eagerly, for small tensors, and for lengths known only at run time unless within
    `compiled_for_each_length`) it runs op by op; the results agree within rounding.
    `function.compiled` and `function.plain` are the two by name.

    Args:
        function: of tensors and Python values.
        sooner: how many times fewer elements than `SMALLEST_FUSED` make compiling pay.
    """
    if function is None:
        return functools.partial(fused, sooner=sooner)
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*arguments):
        shapes = [value.shape for value in arguments if tf.is_tensor(value)]
        return (compiled if compiles(shapes, sooner) else function)(*arguments)

    vars(call).update(compiled=compiled, plain=function)
    return call


def is_fused(*tensors: tf.Tensor) -> bool:
    """Returns True if XLA compiles a `fused` function of these tensors, by itself or on a TPU."""
    as_part = on_tpu() and not tf.executing_eagerly()
    return as_part or compiles([tensor.shape for tensor in tensors])


def compiles(shapes, sooner=1):
    """Returns True if `fused` compiles a function of tensors of these shapes."""
    if tf.executing_eagerly() or on_tpu() or any(shape.rank is None for shape in shapes):
        return False
    each_length = _each_length.get() and running_on_cpu_only()
    if not (each_length or all(shape.is_fully_defined() for shape in shapes)):
        return False
    counts = (math.prod(UNKNOWN_LENGTH if n is None else n for n in shape) for shape in shapes)
    return sooner * max(counts) >= SMALLEST_FUSED


_each_length = contextvars.ContextVar("each_length", default=False)


@contextlib.contextmanager
def compiled_for_each_length() -> Iterator[None]:
    """In graphs built within, functions of lengths known only at run time are compiled as well.

    A step of a length that has not occurred before then takes a second or two longer, all others
    are faster. That is for training, not for a server, whose request would wait. On CPUs only:
    elsewhere nobody has measured what compiling costs.
    """
    token = _each_length.set(True)
    try:
        yield
    finally:
        _each_length.reset(token)


def sizes(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """Its dimensions: numbers, and int32 scalars for those known only at run time.

    Taking dimensions from `tf.shape` and putting them together again is a dozen operations, which
    take longest when a graph is built.
    """
    known = list(tensor.shape)
    if None not in known:
        return known
    found = tf.unstack(tf.shape(tensor))
    return [found[i] if n is None else n for i, n in enumerate(known)]


def last_axis_mean(tensor: tf.Tensor) -> tf.Tensor:
    """Mean over the last axis, for use in fused functions. [..., D] -> [..., 1].

    Where that axis is longer than 32, XLA on a CPU sums windows first, and writes out what it sums
    to read it again. What goes into a mean of means, each of at most 32, stays within one pass.
    """
    length = tensor.shape[-1] or 0  # 0: known only at run time
    if running_on_cpu_only() and compiles([tensor.shape]) and length > LONGEST_SUM:
        divisors = [n for n in range(2, LONGEST_SUM + 1) if length % n == 0]
        if divisors and length // divisors[-1] <= LONGEST_SUM:
            parts = [length // divisors[-1], divisors[-1]]
            tensor = tf.reduce_mean(tf.reshape(tensor, [*sizes(tensor)[:-1], *parts]), -2)
    return tf.reduce_mean(tensor, -1, keepdims=True)


def sum_to_last_axis(tensor: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [D]; on a CPU a product with ones, which is 2 to 6 times as fast as a sum.

    A GPU or TPU fuses a sum with what is summed, and would have to write that for a product.
    """
    rows = tf.reshape(tensor, [-1, tensor.shape[-1]])
    if not running_on_cpu_only():
        return tf.reduce_sum(rows, 0)
    return tf.squeeze(tf.matmul(tf.ones([1, sizes(rows)[0]], rows.dtype), rows), 0)

"""Fusion: decides which chains of elementwise operations XLA compiles into one pass.

Matrix products already run at the machine's limit. The operations between them are memory-bound:
op by op, each one reads and writes a whole tensor.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator

import tensorflow as tf

from convbert.common.backend import built_for_tpu, on_tpu, running_on_cpu_only

# Below this many elements, compiling takes longer than a small model's training gains.
SMALLEST_FUSED = 2**18
SMALLEST_ON_CPU = 2**16  # the same if lengths are known; other devices were not measured
UNKNOWN_LENGTH = 32  # assumed size of a dimension known only at run time
LONGEST_SUM = 32  # the longest sum that XLA fuses with its input on a CPU
# Tokens for which a TPU's compiler was asked about such products (docs/log/2026-11-compilers.md).
LONGEST_PRODUCT = 512


def fused(function: Callable | None = None, *, sooner: int = 1) -> Callable:
    """Compiles `function` if its tensors' shapes are known when the graph is built.

    Otherwise (eagerly, for small tensors, and for lengths known only at run time outside of
    `compiled_for_each_length`) it runs op by op; results agree within rounding.
    `function.compiled` and `function.plain` are the two forms.

    Args:
        function: takes tensors and Python values.
        sooner: divisor of the smallest number of elements, for a function that gains more from
            compiling.
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
    on_cpu, known = running_on_cpu_only(), all(shape.is_fully_defined() for shape in shapes)
    if not (known or (_each_length.get() and on_cpu)):
        return False
    smallest = SMALLEST_ON_CPU if known and on_cpu else SMALLEST_FUSED
    counts = (math.prod(UNKNOWN_LENGTH if n is None else n for n in shape) for shape in shapes)
    return sooner * max(counts) >= smallest


def on_matrix_unit(length) -> bool:
    """Returns True where products of mostly zeros pay: on a TPU, up to `LONGEST_PRODUCT` tokens."""
    return built_for_tpu() and isinstance(length, int) and length <= LONGEST_PRODUCT


_each_length = contextvars.ContextVar("each_length", default=False)


@contextlib.contextmanager
def compiled_for_each_length() -> Iterator[None]:
    """Makes graphs built within also compile functions of lengths known only at run time.

    The first step of each length takes a second or two longer; all others are faster. This suits
    training, not servers, whose requests would wait. CPUs only: the cost of compiling has not been
    measured elsewhere.
    """
    token = _each_length.set(True)
    try:
        yield
    finally:
        _each_length.reset(token)


_without_gradients = contextvars.ContextVar("without_gradients", default=False)


@contextlib.contextmanager
def without_gradients() -> Iterator[None]:
    """Leaves the gradients of `custom_gradient` out of graphs built within, which only answer.

    A SavedModel would keep them: a quarter of its graph, and almost half the time of loading it.
    """
    token = _without_gradients.set(True)
    try:
        yield
    finally:
        _without_gradients.reset(token)


def custom_gradient(function: Callable) -> Callable:
    """`tf.custom_gradient`, without the gradient in graphs built `without_gradients`.

    `function` maps tensors to a result and its gradient.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)[0] if _without_gradients.get() else differentiable(*arguments)

    return call


def sizes(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """Returns a tensor's dimensions; int32 scalars for those known only at run time.

    Taking dimensions from `tf.shape` and stacking them again takes a dozen operations, which slow
    down building the graph most of all.
    """
    known = list(tensor.shape)
    if None not in known:
        return known
    found = tf.unstack(tf.shape(tensor))
    return [found[i] if n is None else n for i, n in enumerate(known)]


def last_axis_mean(tensor: tf.Tensor) -> tf.Tensor:
    """Mean over the last axis, for use in fused functions. [..., D] -> [..., 1].

    If the axis is longer than 32, XLA on a CPU first sums windows, and writes and rereads their
    input. A mean of means, each over at most 32 values, stays within one pass.
    """
    length = tensor.shape[-1] or 0  # 0: known only at run time
    if running_on_cpu_only() and compiles([tensor.shape]) and length > LONGEST_SUM:
        divisors = [n for n in range(2, LONGEST_SUM + 1) if length % n == 0]
        if divisors and length // divisors[-1] <= LONGEST_SUM:
            parts = [length // divisors[-1], divisors[-1]]
            tensor = tf.reduce_mean(tf.reshape(tensor, [*sizes(tensor)[:-1], *parts]), -2)
    return tf.reduce_mean(tensor, -1, keepdims=True)


def sum_to_last_axis(tensor: tf.Tensor) -> tf.Tensor:
    """Sums [..., D] to [D]; on a CPU by a product with ones, 2 to 6 times as fast as a sum.

    A GPU or TPU fuses a sum with its input, which a product would have to store.
    """
    rows = tf.reshape(tensor, [-1, tensor.shape[-1]])
    if not running_on_cpu_only():
        return tf.reduce_sum(rows, 0)
    return tf.squeeze(tf.matmul(tf.ones([1, sizes(rows)[0]], rows.dtype), rows), 0)

"""Chains of elementwise steps, each compiled into one kernel, with gradients written out.

Matrix products run at the machine's limit by themselves; what lies between them is bound by memory,
and op by op each step of it reads and writes a whole tensor. Every function here is plain
TensorFlow that says what is computed; `fused` lets XLA turn it into one pass where that pays.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator

import tensorflow as tf

# Below this many elements compiling takes longer than a small model's whole training gains by it.
SMALLEST_FUSED = 2**18
UNKNOWN_LENGTH = 32  # what a dimension known only at run time counts as, against that
LONGEST_SUM = 32  # that XLA fuses, on a processor, with what it sums


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
        return (compiled if _compiles(shapes, sooner) else function)(*arguments)

    call.compiled, call.plain = compiled, function
    return call


def _compiles(shapes, sooner=1):
    """Whether a fused function of tensors of these shapes is compiled."""
    if tf.executing_eagerly() or any(shape.rank is None for shape in shapes):
        return False
    each_length = _each_length.get() and on_processor()
    if not (each_length or all(shape.is_fully_defined() for shape in shapes)):
        return False
    counts = (math.prod(UNKNOWN_LENGTH if n is None else n for n in shape) for shape in shapes)
    return sooner * max(counts) >= SMALLEST_FUSED


_each_length = contextvars.ContextVar("each_length", default=False)


@contextlib.contextmanager
def compiled_for_each_length() -> Iterator[None]:
    """In graphs built within, functions of lengths known only at run time are compiled as well.

    A step of a length that has not occurred before then takes a second or two longer, all others
    are faster. That is for training, not for a server, whose request would wait. On processors
    only: elsewhere nobody has measured what compiling costs.
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


def row_mean(tensor: tf.Tensor) -> tf.Tensor:
    """Mean over the last axis, for use in fused functions. [..., D] -> [..., 1].

    Of rows longer than 32 XLA sums windows first, and writes out what it sums to read it again.
    What goes into a mean of means, each of at most 32, stays within the kernel.
    """
    length = tensor.shape[-1] or 0  # 0: known only at run time
    if on_processor() and _compiles([tensor.shape]) and length > LONGEST_SUM:
        divisors = [n for n in range(2, LONGEST_SUM + 1) if length % n == 0]
        if divisors and length // divisors[-1] <= LONGEST_SUM:
            parts = [length // divisors[-1], divisors[-1]]
            tensor = tf.reduce_mean(tf.reshape(tensor, [*sizes(tensor)[:-1], *parts]), -2)
    return tf.reduce_mean(tensor, -1, keepdims=True)


def on_processor() -> bool:
    """Where what is measured on processors only, and would not be chosen unmeasured, holds."""
    return not any(tf.config.list_physical_devices(kind) for kind in ("GPU", "TPU"))


@tf.custom_gradient
def gelu(inputs: tf.Tensor):
    """x Φ(x), with the exact normal distribution function Φ, as BERT has it. Any shape."""
    return _gelu(inputs), lambda upstream: _gelu_gradient(inputs, upstream)


@fused
def _gelu(inputs):
    x = tf.cast(inputs, tf.float32)
    return tf.cast(x * _normal_cdf(x), inputs.dtype)


@fused
def _gelu_gradient(inputs, upstream):
    x = tf.cast(inputs, tf.float32)
    density = tf.exp(-0.5 * x * x) * (2.0 * math.pi) ** -0.5
    slope = _normal_cdf(x) + x * density
    return tf.cast(tf.cast(upstream, tf.float32) * slope, inputs.dtype)


def _normal_cdf(x):
    return 0.5 * (1.0 + tf.math.erf(x * 0.5**0.5))


def gelu_new(inputs: tf.Tensor) -> tf.Tensor:
    """GELU by tanh, as in the first code of BERT and in GPT-2; in float32 inside. Any shape."""
    x = tf.cast(inputs, tf.float32)
    return tf.cast(tf.nn.gelu(x, approximate=True), inputs.dtype)


def dropout(inputs: tf.Tensor, rate: float, seed: tf.Tensor | None = None) -> tf.Tensor:
    """Dropout as a pure function of its seed, so that a resumed run repeats itself.

    Args:
        inputs: a float tensor of any shape.
        rate: share of the elements set to zero.
        seed: int32 [2]; not read at a rate of 0, as in inference.
    """
    if rate == 0.0:
        return inputs

    @tf.custom_gradient
    def drop(inputs):
        return _drop(inputs, seed, rate), lambda upstream: _drop(upstream, seed, rate)

    return drop(inputs)


@fused
def _drop(inputs, seed, rate):
    scaled = inputs * tf.cast(1.0 / (1.0 - rate), inputs.dtype)
    return tf.where(_kept(inputs, seed, rate), scaled, tf.zeros([], inputs.dtype))


def _kept(like, seed, rate):
    """Which elements of `like` dropout keeps: a hash of (seed, index), not below the rate.

    The hash is integer arithmetic that fuses into whatever reads it, so that no mask is ever
    stored: the backward pass works it out again. TensorFlow's generator spends 5 ns a word on a
    processor, a tenth of a training step. Whole words are compared, since uniform floats of
    bfloat16 have 128 values and would drop 13/128 of the elements where 1/10 is asked for.
    """
    first, second = tf.unstack(tf.bitcast(seed, tf.uint32))
    # By way of int64, whose range and casts there are on GPUs.
    index = tf.cast(tf.cast(tf.range(tf.size(like, tf.int64)), tf.uint64), tf.uint32)
    words = _mix(_mix(index + first) ^ second)
    return tf.reshape(words >= round(rate * 2**32), sizes(like))


def _mix(words):
    """A bijection of uint32 in which every bit depends on every other (hash-prospector's)."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words ^= tf.bitwise.right_shift(words, tf.constant(shift, tf.uint32))
        words *= tf.constant(factor, tf.uint32)
    return words ^ tf.bitwise.right_shift(words, tf.constant(16, tf.uint32))


def attention_probabilities(
    scores: tf.Tensor, bias: tf.Tensor, rate: float, seed: tf.Tensor | None
) -> tf.Tensor:
    """dropout(softmax(scores + bias)).

    Args:
        scores: [B, N, S, S].
        bias: [B, 1, 1, S] or of rank 0; receives no gradient.
        rate: of the dropout.
        seed: int32 [2] of the dropout; not read at a rate of 0.
    """

    @tf.custom_gradient
    def probabilities(scores):
        # Not fused: XLA's reductions along rows are slow on processors, these kernels are not.
        undropped = tf.nn.softmax(scores + bias)

        def gradient(upstream):
            return _attention_probabilities_gradient(upstream, undropped, seed, rate)

        dropped = undropped if rate == 0.0 else _drop(undropped, seed, rate)
        return dropped, gradient

    return probabilities(scores)


@fused
def _attention_probabilities_gradient(upstream, undropped, seed, rate):
    dtype, upstream = undropped.dtype, tf.cast(upstream, tf.float32)
    if rate > 0.0:
        upstream = _drop.plain(upstream, seed, rate)
    undropped = tf.cast(undropped, tf.float32)
    slope = row_mean(upstream * undropped) * tf.cast(sizes(undropped)[-1], tf.float32)
    return tf.cast((upstream - slope) * undropped, dtype)


@tf.custom_gradient
def swap_tokens_and_heads(tensor: tf.Tensor):
    """[B, S, N, H] <-> [B, N, S, H]: before and after attention."""
    return _swap(tensor), _swap


def _swap(tensor):
    # The bits as integers: of floats, TensorFlow makes a oneDNN transposition, whose start takes
    # 50 us, five times as long as all of it does for a short text.
    integers = {2: tf.int16, 4: tf.int32}[tensor.dtype.size]
    swapped = tf.transpose(tf.bitcast(tensor, integers), [0, 2, 1, 3])
    return tf.bitcast(swapped, tensor.dtype)


def affine(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """inputs [..., in] times kernel [in, out] plus bias [out], as one product over all tokens."""
    # Variables of mixed precision become tensors of the compute dtype here.
    return _affine(inputs, tf.convert_to_tensor(kernel), tf.convert_to_tensor(bias))


@tf.custom_gradient
def _affine(inputs, kernel, bias):
    flat = tf.reshape(inputs, [-1, kernel.shape[0]])
    shape = [*sizes(inputs)[:-1], kernel.shape[1]]
    product = tf.matmul(flat, kernel)
    if _bias_apart(inputs, kernel):
        outputs = _add_bias_apart(tf.reshape(product, shape), bias)
    else:
        outputs = tf.reshape(tf.nn.bias_add(product, bias), shape)

    def gradient(upstream):
        upstream = tf.reshape(upstream, [-1, kernel.shape[1]])
        to_inputs = tf.matmul(upstream, kernel, transpose_b=True)
        to_kernel = tf.matmul(flat, upstream, transpose_a=True)
        return tf.reshape(to_inputs, sizes(inputs)), to_kernel, _sum_of_rows(upstream)

    return outputs, gradient


def _bias_apart(inputs, kernel):
    """Whether a bias is added to inputs [..., in] times kernel [in, out] by a kernel of its own.

    As part of the product it costs nothing in float32. In bfloat16 oneDNN keeps the whole product
    in float32 then, and rounds it in a second pass, which takes longer where products are large.
    """
    if inputs.dtype != tf.bfloat16 or not on_processor():
        return False
    return _compiles([inputs.shape[:-1].concatenate(kernel.shape[1:])])


@fused
def _add_bias_apart(product, bias):
    return tf.nn.bias_add(product, bias)


@fused
def _add_bias_and_gelu(product, bias):
    biased = tf.cast(product, tf.float32) + tf.cast(bias, tf.float32)
    return tf.cast(_gelu.plain(biased), product.dtype)


def affine_gelu(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """gelu(affine(inputs, kernel, bias)), for inference.

    On a processor TensorFlow's graph optimizer makes one operation of it, with lengths known only
    at run time too; it goes by the form below, in which nothing else may read what lies between.
    With bfloat16 that operation rounds its result only. In training the gradient needs what GELU
    was applied to: `gelu(affine(...))` keeps it.
    """
    flat = tf.reshape(inputs, [-1, kernel.shape[0]])
    product = tf.matmul(flat, kernel)
    shape = [*sizes(inputs)[:-1], kernel.shape[1]]
    if _bias_apart(inputs, kernel):
        outputs = _add_bias_and_gelu(product, bias)
    else:
        x = tf.nn.bias_add(product, bias)
        outputs = (0.5 * x) * (1.0 + tf.math.erf(x * 0.5**0.5))
    return tf.reshape(outputs, shape)


def add_and_norm(
    inputs: tf.Tensor,
    residual: tf.Tensor | None,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Layer normalisation of residual + dropout(inputs), in float32 whatever comes in and goes out.

    Args:
        inputs: [..., D].
        residual: [..., D], or None for none.
        gamma: [D] float32, the scale.
        beta: [D] float32, the shift.
        epsilon: added to the variance.
        rate: of the dropout.
        seed: int32 [2] of the dropout; not read at a rate of 0.

    Returns:
        [..., D] in the dtype of `inputs`.
    """
    if rate > 0.0:
        # A kernel of its own, lest every pass of the norm works out the hash again.
        inputs = _drop_then_add(inputs, residual, seed, rate)
        residual = None
    if residual is None:
        residual = tf.zeros([], inputs.dtype)

    @tf.custom_gradient
    def norm(inputs, residual, gamma, beta):
        def gradient(upstream):
            to_sum, by_gamma = _add_and_norm_gradient(upstream, inputs, residual, gamma, epsilon)
            to_residual = to_sum if residual.shape.rank else tf.zeros([], residual.dtype)
            to_beta = _sum_of_rows(tf.cast(upstream, tf.float32))
            return to_sum, to_residual, _sum_of_rows(by_gamma), to_beta

        return _add_and_norm(inputs, residual, gamma, beta, epsilon), gradient

    return norm(inputs, residual, gamma, beta)


def _drop_then_add(inputs, residual, seed, rate):
    if residual is None:
        return dropout(inputs, rate, seed)

    @tf.custom_gradient
    def drop_and_add(inputs, residual):
        def gradient(upstream):
            return _drop(upstream, seed, rate), upstream

        return _drop_and_add(inputs, residual, seed, rate), gradient

    return drop_and_add(inputs, residual)


@fused
def _drop_and_add(inputs, residual, seed, rate):
    return _drop.plain(inputs, seed, rate) + residual


@fused
def _add_and_norm(inputs, residual, gamma, beta, epsilon):
    normed, _ = _normalized(inputs, residual, epsilon)
    return tf.cast(normed * gamma + beta, inputs.dtype)


@fused
def _add_and_norm_gradient(upstream, inputs, residual, gamma, epsilon):
    """The gradient of the sum that is normalised, and what adds up to that of gamma."""
    normed, deviation = _normalized(inputs, residual, epsilon)
    upstream = tf.cast(upstream, tf.float32)
    scaled = upstream * gamma
    mean, slope = row_mean(scaled), row_mean(scaled * normed)
    to_sum = (scaled - mean - normed * slope) / deviation
    return tf.cast(to_sum, inputs.dtype), upstream * normed


def _sum_of_rows(tensor):
    """[..., D] -> [D], as a product with ones: on a processor 2 to 6 times as fast as a sum."""
    rows = tf.reshape(tensor, [-1, tensor.shape[-1]])
    return tf.squeeze(tf.matmul(tf.ones([1, sizes(rows)[0]], rows.dtype), rows), 0)


def _normalized(inputs, residual, epsilon):
    """The normalised sum [..., D] and its standard deviation [..., 1], float32."""
    total = tf.cast(inputs, tf.float32) + tf.cast(residual, tf.float32)
    centered = total - row_mean(total)
    deviation = tf.sqrt(row_mean(centered * centered) + epsilon)
    return centered / deviation, deviation


@fused
def add_bias(logits: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Logits of any dtype plus a float32 bias, in float32."""
    return tf.cast(logits, tf.float32) + bias

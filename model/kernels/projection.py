"""Matrix products with bias and activation, also of several layers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras

from convbert.common.backend import built_for_litert, built_for_tpu
from convbert.model.kernels.activations import (
    fused_gelu,
    fused_gelu_new,
    gelu,
    gelu_new,
    gelu_new_reference,
    gelu_reference,
)
from convbert.model.kernels.fusion import (
    compiles,
    custom_gradient,
    fused,
    running_on_cpu_only,
    sizes,
    sum_to_last_axis,
)


def affine(inputs: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """inputs [..., in] times weights [in, out] plus bias [out], as one product over all tokens."""
    # Mixed-precision variables become tensors of the compute dtype here.
    weights = tf.convert_to_tensor(weights)
    if built_for_litert():  # XNNPACK cannot reshape to sizes known only at run time
        product = tf.matmul(inputs, weights)
        return product if bias is None else product + bias
    if bias is None:
        product = tf.matmul(tf.reshape(inputs, [-1, weights.shape[0]]), weights)
        return tf.reshape(product, [*sizes(inputs)[:-1], weights.shape[1]])
    return _affine(inputs, weights, tf.convert_to_tensor(bias))


def affine_reference(inputs, weights, bias):
    """Readable form of `affine`."""
    return tf.einsum("...i,io->...o", inputs, weights) + (0.0 if bias is None else bias)


@custom_gradient
def _affine(inputs, weights, bias):
    flat = tf.reshape(inputs, [-1, weights.shape[0]])
    shape = [*sizes(inputs)[:-1], weights.shape[1]]
    product = tf.matmul(flat, weights)
    if _bias_apart(inputs, weights):
        outputs = _add_bias_apart(tf.reshape(product, shape), bias)
    else:
        outputs = tf.reshape(tf.nn.bias_add(product, bias), shape)

    def gradient(upstream):
        upstream = tf.reshape(upstream, [-1, weights.shape[1]])
        to_inputs = tf.matmul(upstream, weights, transpose_b=True)
        to_weights = tf.matmul(flat, upstream, transpose_a=True)
        return tf.reshape(to_inputs, sizes(inputs)), to_weights, sum_to_last_axis(upstream)

    return outputs, gradient


def _bias_apart(inputs, weights):
    """Returns True if the bias of inputs [..., in] times weights [in, out] is added separately.

    As part of the product it is free in float32. In bfloat16, oneDNN then keeps the whole product
    in float32 and rounds it in a second pass, which takes longer for large products.
    """
    if inputs.dtype != tf.bfloat16 or not running_on_cpu_only():
        return False
    return compiles([inputs.shape[:-1].concatenate(weights.shape[1:])])


@fused
def _add_bias_apart(product, bias):
    return tf.nn.bias_add(product, bias)


@fused
def _add_bias_and_gelu(product, bias, approximate):
    biased = tf.cast(product, tf.float32) + tf.cast(bias, tf.float32)
    function = fused_gelu_new if approximate else fused_gelu
    return tf.cast(function.plain(biased), product.dtype)


def affine_gelu(
    inputs: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor, approximate: bool = False
) -> tf.Tensor:
    """Computes `gelu`, or `gelu_new`, of affine(inputs, weights, bias) for inference.

    On a CPU, TensorFlow's graph optimizer fuses it into one operation, also for lengths known only
    at run time. It matches the form below, where nothing else may read the intermediate values.
    With bfloat16, the fused operation rounds only its result. In training, use
    `gelu(affine(...))`, which keeps GELU's input for the gradient.
    """
    if built_for_litert():
        return (gelu_new if approximate else gelu)(affine(inputs, weights, bias))
    weights, bias = tf.convert_to_tensor(weights), tf.convert_to_tensor(bias)
    flat = tf.reshape(inputs, [-1, weights.shape[0]])
    product = tf.matmul(flat, weights)
    shape = [*sizes(inputs)[:-1], weights.shape[1]]
    if _bias_apart(inputs, weights):
        outputs = _add_bias_and_gelu(product, bias, approximate)
    elif approximate:
        outputs = tf.nn.gelu(tf.nn.bias_add(product, bias), approximate=True)
    else:
        x = tf.nn.bias_add(product, bias)
        outputs = (0.5 * x) * (1.0 + tf.math.erf(x * 0.5**0.5))
    return tf.reshape(outputs, shape)


def affine_gelu_reference(inputs, weights, bias, approximate=False):
    """Readable form of `affine_gelu`."""
    function = gelu_new_reference if approximate else gelu_reference
    return function(affine_reference(inputs, weights, bias))


def dense_product(
    inputs: tf.Tensor,
    weights: tf.Tensor,
    bias: tf.Tensor | None,
    activation: Callable,
    training: bool,
) -> tf.Tensor:
    """activation(inputs [..., in] times weights [in, out] plus bias [out])."""
    if activation in (gelu, gelu_new) and bias is not None and not training:
        return affine_gelu(inputs, weights, bias, activation is gelu_new)
    return activation(affine(inputs, weights, bias))


def grouped_product(
    inputs: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor, activation: Callable, training: bool
) -> tf.Tensor:
    """Applies `dense_product` to each of G groups of the last axis.

    Shape: inputs [B, S, in], weights [G, in / G, out / G], bias [out] -> [B, S, out].
    """
    groups = weights.shape[0]
    if not training:
        # One by one: transposing the groups costs more than a joint product saves.
        parts = zip(tf.split(inputs, groups, -1), tf.unstack(weights), tf.split(bias, groups))
        return tf.concat([dense_product(*part, activation, training) for part in parts], -1)
    B, S, _ = sizes(inputs)
    grouped = tf.reshape(inputs, [B, S, groups, weights.shape[1]])  # [B, S, G, in/G]
    outputs = tf.einsum("bsgi,gio->bsgo", grouped, weights)  # [B, S, G, out/G]
    return activation(tf.reshape(outputs, [B, S, bias.shape[0]]) + bias)


def grouped_product_reference(inputs, weights, bias, activation):
    """Readable form of `grouped_product`."""
    parts = zip(tf.split(inputs, weights.shape[0], -1), tf.unstack(weights))
    return activation(tf.concat([part @ of_group for part, of_group in parts], -1) + bias)


def project(
    inputs: tf.Tensor, layers: Sequence[tf_keras.layers.Dense | None], training: bool
) -> list[tf.Tensor | None]:
    """Applies several built linear dense layers to inputs [..., in]; None stays None.

    Training uses one matrix product, and one for the gradient. In inference, joining the weights
    costs more than it saves: a twentieth of the time for a short text.
    """
    used = [layer for layer in layers if layer is not None]
    if training:
        weights = tf.concat([layer.kernel for layer in used], 1)
        biases = [layer.bias for layer in used if layer.bias is not None]
        # A TPU would join the parts' gradients again, to sum them for a joined bias.
        apart = built_for_tpu()
        bias = tf.concat(biases, 0) if biases and not apart else None
        parts = tf.split(affine(inputs, weights, bias), [layer.units for layer in used], axis=-1)
        if biases and apart:
            parts = [tf.nn.bias_add(part, b) for part, b in zip(parts, biases, strict=True)]
    else:
        parts = [layer(inputs) for layer in used]
    remaining = iter(parts)
    return [None if layer is None else next(remaining) for layer in layers]


def vocabulary_logits(hidden: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns hidden [B, P, E] times the transposed table [V, E] plus bias, float32 [B, P, V].

    `hidden` has the dtype of `table`, `bias` is float32 [V].
    """
    logits = tf.matmul(tf.reshape(hidden, [-1, table.shape[1]]), table, transpose_b=True)
    if logits.dtype == tf.float32:
        logits = tf.nn.bias_add(logits, bias)  # becomes part of the product
    else:
        logits = _add_float32_bias(logits, bias)
    return tf.reshape(logits, [*sizes(hidden)[:-1], table.shape[0]])


def vocabulary_logits_reference(hidden, table, bias):
    """Readable form of `vocabulary_logits`."""
    return tf.einsum("bpe,ve->bpv", hidden, table) + bias


@fused
def _add_float32_bias(logits, bias):
    return tf.cast(logits, tf.float32) + bias

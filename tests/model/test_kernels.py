"""Kernels: compiled against plain, and each, with its gradients, against its reference."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf

from convbert.model.kernels import (
    activations,
    attention,
    compiled_for_each_length,
    convolution,
    fusion,
    normalization,
    projection,
    stateless_dropout,
)
from convbert.model.token_mixing import attention_bias, packed_attention_bias
from convbert.pretrain import vocabulary_softmax
from tests.model_support import normal

B, S, D, N, K = 4, 24, 16, 2, 5
SEED, EPSILON = tf.constant([3, 4]), 1e-12
TOLERANCE = {tf.float32: 1e-5, tf.bfloat16: 3e-2}


def tensors(*shapes, dtype=tf.float32):
    return [tf.cast(normal(*shape, seed=i), dtype) for i, shape in enumerate(shapes)]


def token_ids():
    return tf.random.stateless_uniform([B, S], [3, 4], 0, 50, tf.int32)


def arguments(name, dtype=tf.float32):
    """Returns the arguments of each fused function."""
    hidden = [B, S, D]
    if name.startswith("_lightweight_conv"):
        given = tensors([B, S, N, D], [B, S, N, K], [B, S, N, D], dtype=dtype)
        return *(given if name.endswith("gradient") else given[:2]), "same"
    if name.startswith("_add_and_norm"):
        inputs, residual, upstream = tensors(hidden, hidden, hidden, dtype=dtype)
        gamma, beta = tensors([D], [D])
        if name == "_add_and_norm":
            return inputs, residual, gamma, beta, EPSILON
        return upstream, inputs, residual, gamma, EPSILON
    if name.startswith("_add_bias"):
        rest = [True] if name == "_add_bias_and_gelu" else []
        return [*tensors(hidden, [D], dtype=dtype), *rest]
    (logits,) = tensors([B, S, 50])
    largest = tf.reduce_max(logits, -1, keepdims=True)
    if name == "_cross_entropy_gradient":
        blocks = vocabulary_softmax.unnormalized_softmax(logits)
        total = tf.reduce_sum(blocks, [2, 3])
        return blocks, total, token_ids(), *tensors([B, S]), 50
    inputs, upstream = tensors(hidden, hidden, dtype=dtype)
    return {
        "_attention_probabilities_gradient": (upstream, tf.nn.softmax(inputs), SEED, 0.1),
        "fused_gelu": (inputs,),
        "_gelu_gradient": (inputs, upstream),
        "fused_gelu_new": (inputs,),
        "_gelu_new_gradient": (inputs, upstream),
        "drop": (inputs, SEED, 0.1),
        "_drop_and_add": (inputs, upstream, SEED, 0.1),
        "_exponentials": (logits, largest),
        "_add_float32_bias": (tf.cast(logits, dtype), *tensors([50])),
    }[name]


MODULES = (activations, attention, convolution, normalization, projection, stateless_dropout)
FUSED = {
    name: value
    for module in (*MODULES, vocabulary_softmax)
    for name, value in vars(module).items()
    if hasattr(value, "compiled")
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", FUSED)
def test_compiled_equals_plain(name, dtype):
    function = FUSED[name]
    given = arguments(name, dtype)
    compiled, plain = function.compiled(*given), function.plain(*given)
    for one, other in zip(tf.nest.flatten(compiled), tf.nest.flatten(plain), strict=True):
        assert one.dtype == other.dtype
        one, other = (tf.cast(value, tf.float32) for value in (one, other))
        np.testing.assert_allclose(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        rounding = 2e-6 * np.abs(other).max()  # of a sum, relative to its largest terms
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=max(1e-5, rounding))


def readable_cross_entropy(logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids(), logits)


def fast_cross_entropy(logits):
    softmax = vocabulary_softmax.unnormalized_softmax(logits)
    return vocabulary_softmax.cross_entropy(logits, softmax, token_ids())


def of_both(name, module, shapes, *given):
    """A kernel and its reference, as functions of tensors of these shapes, which `given` follow."""
    fast, readable = getattr(module, name), getattr(module, f"{name}_reference")
    both = (lambda *tensors, of=of: of(*tensors, *given) for of in (fast, readable))
    return *both, shapes


HIDDEN, WEIGHTS, GROUPED = [B, S, D], [D, 2 * D], [2, D // 2, D]
AFFINE, CONVOLVED = [HIDDEN, WEIGHTS, [2 * D]], [[B, S, N * D], [B, S, N * K]]
NORMED, TAPS = [HIDDEN, HIDDEN, [D], [D]], [HIDDEN, [K, D]]
PADDING = attention_bias(tf.sequence_mask([S] * (B - 1) + [S - 2], S, tf.int32), tf.float32)
PACKING = packed_attention_bias(tf.range(S)[None] // [[24], [7], [1], [11]], tf.float32)
NEARBY = (3, 5, 0.0, None, True)  # radius and blocks; the last one is not full
PATHS = {
    "gelu": of_both("gelu", activations, [HIDDEN]),
    "gelu_new": of_both("gelu_new", activations, [HIDDEN]),
    "dropout": of_both("dropout", stateless_dropout, [HIDDEN], 0.3, SEED),
    "attention": of_both("attention_probabilities", attention, [[B, N, S, S]], 0.5, 0.3, SEED),
    "attend": of_both("attend", attention, [HIDDEN] * 3, N, PADDING, 0.3, SEED),
    "nearby padded": of_both("attend_nearby", attention, [HIDDEN] * 3, N, PADDING, *NEARBY),
    "nearby packed": of_both("attend_nearby", attention, [HIDDEN] * 3, N, PACKING, *NEARBY),
    "split heads": of_both("split_heads", attention, [HIDDEN], N),
    "join heads": of_both("join_heads", attention, [[B, N, S, D]]),
    "affine": of_both("affine", projection, AFFINE),
    "affine and gelu": of_both("affine_gelu", projection, AFFINE),
    "affine and gelu_new": of_both("affine_gelu", projection, AFFINE, True),
    "norm": of_both("add_and_norm", normalization, NORMED, EPSILON),
    "norm with dropout": of_both("add_and_norm", normalization, NORMED, EPSILON, 0.3, SEED),
    "norm without a residual": (
        lambda x, *weights: normalization.add_and_norm(x, None, *weights, EPSILON),
        lambda x, *weights: normalization.add_and_norm_reference(x, None, *weights, EPSILON),
        [HIDDEN, [D], [D]],
    ),
    "convolution": of_both("lightweight_conv", convolution, CONVOLVED, N),
    "causal convolution": of_both("lightweight_conv", convolution, CONVOLVED, N, "causal"),
    "depthwise convolution": of_both("depthwise_conv", convolution, TAPS),
    "depthwise causal convolution": of_both("depthwise_conv", convolution, TAPS, "causal"),
    "depthwise valid convolution": of_both("depthwise_conv", convolution, TAPS, "valid"),
    "logits": of_both("vocabulary_logits", projection, [HIDDEN, [50, D], [50]]),
    "cross entropy": (fast_cross_entropy, readable_cross_entropy, [[B, S, 50]]),
}
for training in (True, False):  # the references are the same
    for activation in (activations.gelu, activations.gelu_new, tf.nn.silu):
        PATHS[f"dense {activation.__name__} {training}"] = (
            lambda *given, rest=(activation, training): projection.dense_product(*given, *rest),
            lambda *given, f=activation: f(projection.affine_reference(*given)),
            AFFINE,
        )
    PATHS[f"grouped {training}"] = (
        lambda *given, rest=(tf.tanh, training): projection.grouped_product(*given, *rest),
        lambda *given: projection.grouped_product_reference(*given, tf.tanh),
        [HIDDEN, GROUPED, [2 * D]],
    )
# Those of matrix products, heads and images, which nothing is fused with.
UNFUSED = ("affine", "depthwise", "split", "join", "logits", "dense", "grouped")


FORMS = [(name, "never") for name in PATHS]
FORMS += [(name, "of each length") for name in PATHS if not name.startswith(UNFUSED)]
STATIC = ("convolution", "norm", "attention", "cross entropy")  # one of each sort
FORMS += [(name, "of known lengths") for name in STATIC]


@pytest.mark.parametrize(("known", "each_length"), [(1, 0), (0, 1)])
def test_smallest_sizes_of_known_and_unknown_lengths(monkeypatch, known, each_length):
    for name, compiles in (("SMALLEST_ON_CPU", known), ("SMALLEST_FUSED", each_length)):
        monkeypatch.setattr(fusion, name, 1 if compiles else 2**40)
    with tf.Graph().as_default(), compiled_for_each_length():
        assert fusion.compiles([tf.TensorShape([2, 3])]) == known
        assert fusion.compiles([tf.TensorShape([2, None])]) == each_length
    with tf.Graph().as_default():
        assert not fusion.compiles([tf.TensorShape([2, None])])


@pytest.mark.parametrize(("name", "compiled"), FORMS)
def test_kernel_is_its_reference(name, compiled, monkeypatch):
    """Values and gradients; compiled as in a graph of large tensors."""
    fast, readable, shapes = PATHS[name]
    for smallest in ("SMALLEST_FUSED", "SMALLEST_ON_CPU"):
        monkeypatch.setattr(fusion, smallest, 2**40 if compiled == "never" else 1)
    monkeypatch.setattr(fusion, "LONGEST_SUM", 4)  # the last axis here is of 16
    traced = shapes
    if compiled == "of each length":
        traced = [[None if n == S else n for n in shape] for shape in shapes]

    @tf.function(input_signature=[tf.TensorSpec(shape) for shape in traced])
    def values_and_gradients(*given):
        outputs = []
        for path in (fast, readable):
            with tf.GradientTape() as tape:
                tape.watch(given)
                output = tf.nest.flatten(path(*given))[0]  # without probabilities
            upstream = tf.cos(tf.cast(tf.range(tf.size(output)), tf.float32))
            upstream = tf.reshape(upstream, tf.shape(output))
            outputs.append([output, *tape.gradient(output, given, upstream)])
        return outputs

    each_length = compiled_for_each_length if compiled == "of each length" else nullcontext
    with each_length():
        graph = values_and_gradients.get_concrete_function().graph
    if not name.startswith(UNFUSED):
        nodes = [str(op.node_def) for op in graph.get_operations()]
        each = compiled == "of each length" and fusion.running_on_cpu_only()
        compiles = each or compiled == "of known lengths"
        assert any("_XlaMustCompile" in node for node in nodes) == compiles
    assert_close(*values_and_gradients(*tensors(*shapes)))


@pytest.mark.perf  # needs a CPU alone: what XLA makes of it there
@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("_add_and_norm", 1),
        ("_add_and_norm_gradient", 2),
        ("_lightweight_conv_forward", None),
        ("_lightweight_conv_gradient", None),
    ],
)
def test_nothing_large_is_stored_in_between(name, results):
    """Sums are fused with their inputs, and no buffer of a convolution is nearly K times as large
    as the values."""
    given, rows, width = arguments(name), 2048, 256
    if results:
        large, vector = tensors([rows, width], [width])
        given = [large if n.shape.rank == 3 else vector for n in given[:-1]] + [EPSILON]
    hlo = FUSED[name].compiled.experimental_get_compiler_ir(*given)(stage="optimized_hlo")
    entry = hlo[hlo.index("ENTRY") :]
    if results:
        made = re.findall(rf"= f32\[{rows},{width}\]\S* (?!parameter)", entry)
        assert results <= len(made) <= results + 1, entry
        return
    shapes = re.findall(r"f32\[([\d,]+)\]", entry)
    sizes = [np.prod([int(n) for n in shape.split(",")]) for shape in shapes]
    values = B * (S + K - 1) * N * D
    assert values * 0.5 < max(sizes) <= values, entry


def test_dropout_keeps_independent_elements():
    """Shares of single elements, of neighbours, of rows and of two seeds, within sampling error."""
    rate, shape = 0.1, [64, 128, 32]
    seeds = [tf.constant(seed) for seed in ([0, 0], [0, 1], [1, 0], [7, 2**31 - 1])]
    masks = [stateless_dropout.dropout(tf.ones(shape), rate, seed).numpy() == 0 for seed in seeds]
    size = masks[0].size
    pairs = [(mask, np.roll(mask, 1, axis)) for mask in masks for axis in range(3)]
    pairs += [(one, other) for i, one in enumerate(masks) for other in masks[:i]]
    for mask in masks:
        assert abs(mask.mean() - rate) < 4 * (rate * (1 - rate) / size) ** 0.5
    for one, other in pairs:
        both = (one & other).mean()
        assert abs(both - rate**2) < 4 * (rate**2 * (1 - rate**2) / size) ** 0.5

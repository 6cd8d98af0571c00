"""Kernels: compiled against plain, each against its reference, and the forms for GPUs and TPUs."""

import re
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.common.backend import for_accelerator
from convbert.model import kernels
from convbert.model.kernels import activations, attention, convolution, normalization, projection
from convbert.model.token_mixing import attention_bias, packed_attention_bias
from convbert.pretrain import vocabulary_softmax
from convbert.training.randomness import inverse_cdf
from tests.model_support import normal

B, S, D, N, K = 4, 24, 16, 2, 5
SEED, EPSILON = tf.constant([3, 4]), 1e-12
TOLERANCE = {tf.float32: 1e-5, tf.bfloat16: 3e-2}


def tensors(*shapes, dtype=tf.float32):
    return [tf.cast(normal(*shape, seed=i), dtype) for i, shape in enumerate(shapes)]


def token_ids():
    return tf.random.stateless_uniform([B, S], [3, 4], 0, 50, tf.int32)


def arguments(name, dtype=tf.float32):
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
        "exponentials_of": (logits, largest),
        "_add_float32_bias": (tf.cast(logits, dtype), *tensors([50])),
    }[name]


DROPOUT = kernels.stateless_dropout
MODULES = (activations, attention, convolution, normalization, projection, DROPOUT)
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
    "dropout": of_both("dropout", DROPOUT, [HIDDEN], 0.3, SEED),
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
    "cross entropy": (
        fast_cross_entropy,
        lambda logits: tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids(), logits),
        [[B, S, 50]],
    ),
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


@pytest.mark.parametrize(("name", "compiled"), FORMS)
def test_kernel_is_its_reference(name, compiled, monkeypatch):
    fast, readable, shapes = PATHS[name]
    smallest = {"of each length": "SMALLEST_FUSED", "of known lengths": "SMALLEST_ON_CPU"}
    for form, name_of in smallest.items():  # the other one would not compile it
        monkeypatch.setattr(kernels.fusion, name_of, 1 if compiled == form else 2**40)
    monkeypatch.setattr(kernels.fusion, "LONGEST_SUM", 4)  # the last axis here is of 16
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

    each_length = kernels.compiled_for_each_length if compiled == "of each length" else nullcontext
    with each_length():
        graph = values_and_gradients.get_concrete_function().graph
    with tf.Graph().as_default():  # a server's
        assert not kernels.fusion.compiles([tf.TensorShape([2, None])])
    if not name.startswith(UNFUSED):
        nodes = [str(op.node_def) for op in graph.get_operations()]
        each = compiled == "of each length" and kernels.fusion.running_on_cpu_only()
        compiles = each or compiled == "of known lengths"
        assert any("_XlaMustCompile" in node for node in nodes) == compiles
    for one, other in zip(*values_and_gradients(*tensors(*shapes)), strict=True):
        rounding = 2e-6 * np.abs(other).max()  # of a sum, relative to its largest terms
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=max(1e-5, rounding))


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
    masks = [DROPOUT.dropout(tf.ones(shape), rate, seed).numpy() == 0 for seed in seeds]
    size = masks[0].size
    pairs = [(mask, np.roll(mask, 1, axis)) for mask in masks for axis in range(3)]
    pairs += [(one, other) for i, one in enumerate(masks) for other in masks[:i]]
    for mask in masks:
        assert abs(mask.mean() - rate) < 4 * (rate * (1 - rate) / size) ** 0.5
    for one, other in pairs:
        both = (one & other).mean()
        assert abs(both - rate**2) < 4 * (rate**2 * (1 - rate**2) / size) ** 0.5


def test_vocabulary_softmax():
    B, P, V = 4, 5, 700
    logits = tf.random.stateless_normal([B, P, V], [1, 2], stddev=2.0)
    ids = tf.random.stateless_uniform([B, P], [3, 4], 0, V, tf.int32)
    noise = tf.random.stateless_uniform([B, P, 2], [5, 6])

    def everything():
        with tf.GradientTape() as tape:
            tape.watch(logits)
            softmax = vocabulary_softmax.unnormalized_softmax(logits)
            entropy = vocabulary_softmax.cross_entropy(logits, softmax, ids)
        drawn = vocabulary_softmax.sample_tokens(softmax, noise, V)
        predicted = vocabulary_softmax.most_likely(logits)
        return softmax, entropy, tape.gradient(entropy, logits), drawn, predicted

    blocks, *expected = tf.function(everything)()
    with for_accelerator():
        flat, *found = tf.function(everything)()
    assert (blocks.shape.rank, flat.shape.rank) == (4, 2)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)


def test_inverse_cdf():
    weights = tf.random.stateless_uniform([300, 90], [1, 2])
    weights = tf.where(weights < 0.3, 0.0, weights)
    noise = tf.random.stateless_uniform([300], [3, 4])
    expected = inverse_cdf(weights, noise)
    with for_accelerator():
        found = inverse_cdf(weights, noise)
    np.testing.assert_array_equal(found, expected)
    assert tf.reduce_min(tf.gather(weights, found, batch_dims=1)) > 0


def assert_same_with_gradients(function, *inputs, tolerance=1e-5):
    """A function's value and its gradients by all inputs, built for a CPU and for a TPU."""

    def everything():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = tf.cast(function(*inputs), tf.float32)
            total = tf.reduce_sum(output * tf.random.stateless_normal(output.shape, [9, 9]))
        return [tf.cast(x, tf.float32) for x in (output, *tape.gradient(total, inputs))]

    expected = everything()
    with for_accelerator():
        found = everything()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("padding", ["same", "causal"])
@pytest.mark.parametrize(
    ("S", "K", "dtype"),
    [*((S, K, "float32") for S, K in ((1, 9), (7, 5), (40, 9), (520, 3))), (40, 9, "bfloat16")],
)
def test_lightweight_conv(S, K, dtype, padding, monkeypatch):
    """As a product with a band, and beyond its longest sequence."""
    bands, form = [], convolution._as_band
    monkeypatch.setattr(convolution, "_as_band", lambda *x: bands.append(S) or form(*x))
    values = tf.cast(tf.random.stateless_normal([2, S, 6], [1, 2]), dtype)
    logits = tf.cast(tf.random.stateless_normal([2, S, 2 * K], [3, 4]), dtype)
    tolerance = 1e-5 if dtype == "float32" else 3e-2
    function = partial(convolution.lightweight_conv, num_heads=2, padding=padding)
    assert_same_with_gradients(function, values, logits, tolerance=tolerance)
    assert bands == [S][: S <= kernels.fusion.LONGEST_PRODUCT]


def test_lightweight_conv_of_unknown_length():
    values, logits = (tf.random.stateless_normal([2, 7, 18], [1, i]) for i in range(2))
    shape = tf.TensorSpec([None, None, 18])
    with for_accelerator():
        traced = tf.function(lambda v, x: convolution.lightweight_conv(v, x, 2))
        found = traced.get_concrete_function(shape, shape)(values, logits)
    expected = convolution.lightweight_conv(values, logits, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scores_by_key(dtype):
    """Of all queries and of some, as products with ones and zeros: the same numbers."""
    places = tf.constant([[0, 6, 3], [2, 2, 5]])
    for function, queries in (
        (kernels.scores_by_key, 7),
        (lambda x: kernels.scores_by_key_at(x, places), 3),
    ):
        scores = tf.cast(tf.random.stateless_normal([2, 4, queries, 14], [1, 2]), dtype)
        assert_same_with_gradients(function, scores, tolerance=0)
        with for_accelerator("tpu"):
            graph = tf.function(function).get_concrete_function(scores).graph
        products = "Einsum" in {of.type for of in graph.get_operations()}
        assert products == (dtype == "bfloat16")


@pytest.mark.bfloat16
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_add_and_norm(offset):
    """With both statistics in one pass, also where the mean is larger than the deviation."""
    inputs, residual = (tf.random.stateless_normal([4, 8, 64], [1, i]) for i in range(2))
    inputs, residual = (tf.cast(x, tf.bfloat16) for x in (inputs, residual + offset))
    gamma, beta = (tf.random.stateless_normal([64], [2, i]) for i in range(2))

    def function(*tensors):
        return normalization.add_and_norm(*tensors, 1e-12)

    assert_same_with_gradients(function, inputs, residual, gamma, beta, tolerance=3e-2)
    with for_accelerator():
        graph = tf.function(function).get_concrete_function(inputs, residual, gamma, beta).graph
    assert "Maximum" in {operation.type for operation in graph.get_operations()}


@pytest.mark.parametrize("use_bias", [True, False])
def test_project(use_bias, monkeypatch):
    given, form = [], projection.affine
    monkeypatch.setattr(projection, "affine", lambda *x: given.append(x[2]) or form(*x))
    layers = [tf_keras.layers.Dense(n, use_bias=use_bias, bias_initializer="ones") for n in (3, 5)]
    for layer in layers:
        layer.build([None, 4])
    inputs = tf.random.stateless_normal([2, 7, 4], [1, 2])
    weights = [variable for layer in layers for variable in layer.trainable_variables]
    assert_same_with_gradients(
        lambda inputs, *_: tf.concat(projection.project(inputs, [None, *layers], True)[1:], -1),
        inputs,
        *weights,
    )
    assert [bias is None for bias in given] == [not use_bias, True]

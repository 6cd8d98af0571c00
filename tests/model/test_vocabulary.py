"""Sums over the vocabulary in blocks, against their references, and what is never in memory."""

import numpy as np
import pytest
import tensorflow as tf

from convbert.model.kernels import vocabulary
from tests.model_support import normal

B, S, E, V = 3, 7, 8, 50
LABELS = (normal(B, S, seed=5) > 0).astype(np.float32)
WEIGHTS = np.abs(normal(B, S, seed=6)).astype(np.float32)
IDS = np.random.default_rng(7).integers(0, V, [B * S]).astype(np.int32)
USED = normal(B * S, seed=8) > -0.3


def given(dtype=tf.float32, scale=1.0):
    """States, table and bias; the scores grow with `scale` squared."""
    states, table = normal(B, S, E, seed=0) * scale, normal(V, E, seed=1) * scale
    return tf.cast(states, dtype), tf.cast(table, dtype), tf.constant(normal(V, seed=2), tf.float32)


def cross_entropy(form, *factors):
    function = getattr(vocabulary, f"log_sum_exp_cross_entropy{form}")
    return function(*factors, tf.constant(LABELS), tf.constant(WEIGHTS))


def softmax_cross_entropy(form, states, table, bias):
    function = getattr(vocabulary, f"vocabulary_cross_entropy{form}")
    return tf.reshape(function(tf.reshape(states, [-1, E]), table, bias, IDS, USED)[0], [B, S])


FUNCTIONS = [cross_entropy, softmax_cross_entropy]


def with_gradients(function, form, factors, wrap=lambda function: function):
    upstream = tf.constant(normal(B, S, seed=4), tf.float32)

    @wrap
    def compute(*factors):
        with tf.GradientTape() as tape:
            tape.watch(factors)
            output = function(form, *factors)
            target = 3.0 * output[0] if isinstance(output, tuple) else upstream * output
        return [*tf.nest.flatten(output), *tape.gradient(target, factors)]

    return compute(*factors)


GRAPH = tf.function(autograph=False)
COMPILED = tf.function(autograph=False, jit_compile=True)
SPECS = [tf.TensorSpec([None, None, E]), tf.TensorSpec([V, E]), tf.TensorSpec([V])]
DYNAMIC = tf.function(autograph=False, input_signature=SPECS)


@pytest.mark.parametrize(
    ("wrap", "positions", "scale"),  # of a block: not dividing B * S, or all
    [
        *((GRAPH, 4, 1.0), (GRAPH, 1000, 1.0)),
        *((COMPILED, 4, 1.0), (DYNAMIC, 4, 1.0), (GRAPH, 4, 20.0)),
    ],
    ids=["some", "all", "compiled", "dynamic", "large scores"],
)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_blocks_are_the_whole(monkeypatch, function, positions, wrap, scale):
    monkeypatch.setattr(vocabulary, "LARGEST_BLOCK", positions * V)
    expected = with_gradients(function, "_reference", given(scale=scale))
    found = with_gradients(function, "", given(scale=scale), wrap)
    sums = vocabulary.vocabulary_log_sum_exp_reference(*given(scale=scale))
    assert (np.max(sums) > 500) == (scale > 1)  # exp would overflow
    in_blocks = wrap(vocabulary.vocabulary_log_sum_exp)(*given(scale=scale))
    np.testing.assert_allclose(in_blocks, sums, rtol=1e-5, atol=1e-5)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3 if scale > 1 else 1e-5)


@pytest.mark.bfloat16
@pytest.mark.parametrize("function", FUNCTIONS)
def test_bfloat16_rounds_as_its_products_do(function):
    expected = with_gradients(function, "_reference", given())
    found = with_gradients(function, "", given(tf.bfloat16))
    types = [tf.float32] * (len(found) - 3) + [tf.bfloat16, tf.bfloat16, tf.float32]
    assert [value.dtype for value in found] == types
    for one, other in zip(found, expected, strict=True):
        difference = tf.norm(tf.cast(one, tf.float32) - other) / tf.norm(other)
        assert difference < 0.02


def test_no_tensor_holds_all_scores(monkeypatch):
    monkeypatch.setattr(vocabulary, "LARGEST_BLOCK", 4 * V)
    traced = tf.function(lambda *f: with_gradients(cross_entropy, "", f), autograph=False)
    graph = traced.get_concrete_function(*given()).graph
    functions = [graph, *(f.graph for f in graph._functions.values())]
    largest = max(
        value.shape.num_elements() or 0
        for function in functions
        for operation in function.get_operations()
        for value in operation.outputs
        if value.shape.rank is not None
    )
    assert largest < B * S * V


@pytest.mark.parametrize("share", [1.0, 0.4, 0.0])
def test_whether_the_id_has_the_highest_score(monkeypatch, share):
    """Only where it is used; elsewhere the id may be any."""
    monkeypatch.setattr(vocabulary, "LARGEST_BLOCK", 4 * V)
    states, table, bias = given()
    states, used = tf.reshape(states, [-1, E]), np.random.default_rng(3).random(B * S) < share
    best = vocabulary.vocabulary_logits(states, table, bias).numpy().argmax(-1)
    ids = np.where(np.arange(B * S) % 2, best, (best + 1) % V).astype(np.int32)
    _, expected = vocabulary.vocabulary_cross_entropy_reference(states, table, bias, ids, used)
    assert expected.numpy().sum() == (used & (ids == best)).sum()
    anything = tf.constant(np.where(used, ids, 10**6).astype(np.int32))
    nll, right = vocabulary.vocabulary_cross_entropy(states, table, bias, anything, used)
    np.testing.assert_array_equal(right, expected)
    np.testing.assert_array_equal(nll.numpy() > 0, used)

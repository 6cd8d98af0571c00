"""Log-sum-exp over the vocabulary in blocks, against its reference, and what is never in memory."""

import numpy as np
import pytest
import tensorflow as tf

from model.kernels import vocabulary
from tests.model_support import normal

B, S, E, V = 3, 7, 8, 50
LABELS = (normal(B, S, seed=5) > 0).astype(np.float32)
WEIGHTS = np.abs(normal(B, S, seed=6)).astype(np.float32)


def given(dtype=tf.float32, scale=1.0):
    """States, table and bias; the scores grow with `scale` squared."""
    states, table = normal(B, S, E, seed=0) * scale, normal(V, E, seed=1) * scale
    return tf.cast(states, dtype), tf.cast(table, dtype), tf.constant(normal(V, seed=2), tf.float32)


def log_sum_exp(form, *factors):
    return getattr(vocabulary, f"vocabulary_log_sum_exp{form}")(*factors)


def cross_entropy(form, *factors):
    function = getattr(vocabulary, f"log_sum_exp_cross_entropy{form}")
    return function(*factors, tf.constant(LABELS), tf.constant(WEIGHTS))


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
    ("wrap", "positions"),  # of a block: one, not dividing B * S, all
    [(GRAPH, 1), (GRAPH, 4), (GRAPH, 1000), (COMPILED, 4), (DYNAMIC, 4)],
    ids=["one", "some", "all", "compiled", "dynamic"],
)
@pytest.mark.parametrize("function", [log_sum_exp, cross_entropy])
def test_blocks_are_the_whole(monkeypatch, function, positions, wrap):
    monkeypatch.setattr(vocabulary, "LARGEST_BLOCK", positions * V)
    expected = with_gradients(function, "_reference", given())
    found = with_gradients(function, "", given(), wrap)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [log_sum_exp, cross_entropy])
def test_scores_may_be_large(monkeypatch, function):
    monkeypatch.setattr(vocabulary, "LARGEST_BLOCK", 4 * V)
    found = with_gradients(function, "", given(scale=20.0))
    assert np.max(found[-4]) > 500  # exp would overflow
    expected = with_gradients(function, "_reference", given(scale=20.0))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("function", [log_sum_exp, cross_entropy])
def test_bfloat16_rounds_as_its_products_do(function):
    expected = with_gradients(function, "_reference", given())
    found = with_gradients(function, "", given(tf.bfloat16))
    types = [tf.float32] * (len(found) - 3) + [tf.bfloat16, tf.bfloat16, tf.float32]
    assert [value.dtype for value in found] == types
    for one, other in zip(found, expected, strict=True):
        difference = tf.norm(tf.cast(one, tf.float32) - other) / tf.norm(other)
        assert difference < 0.02


def test_no_sequences_no_error():
    states, table, bias = given()
    assert (
        DYNAMIC(lambda *factors: log_sum_exp("", *factors))(states[:0], table, bias).shape[0] == 0
    )


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

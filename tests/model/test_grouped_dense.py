"""The grouped linear operator against equation 1 of the ConvBERT authors' response."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from convbert.model.layers import GroupedDense
from tests.model_support import TINY, normal, randomize

B, S, D, M = 2, 5, 16, 24


def build(groups: int, activation=None) -> GroupedDense:
    layer = GroupedDense(TINY, M, groups, activation=activation)
    layer(tf.zeros([1, 1, D]))
    randomize(layer)
    return layer


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("training", [True, False])
def test_follows_the_equation(groups, training):
    """M = concatenation over i of f^i(H[:, i-th of g slices]), f^i dense d/g -> m/g."""
    layer, hidden = build(groups), normal(B, S, D)
    kernel, bias = layer.get_weights()
    assert kernel.shape == (groups, D // groups, M // groups)
    expected = np.zeros([B, S, M])
    for b, s, column in np.ndindex(B, S, M):
        group, within = divmod(column, M // groups)
        for row in range(D // groups):
            source = hidden[b, s, group * (D // groups) + row]
            expected[b, s, column] += source * kernel[group, row, within]
        expected[b, s, column] += bias[column]
    np.testing.assert_allclose(layer(hidden, training=training), expected, rtol=1e-4, atol=1e-5)

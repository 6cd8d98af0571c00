"""Properties of XLNet; its equations are in tests/checkpoints/test_xlnet.py."""

import numpy as np
import tensorflow as tf

from tests.model_support import TINY_XLNET as TINY
from tests.model_support import build_tiny, random_features

B, S = 4, 7
LENGTHS = (7, 4, 6, 3)


def test_padding_on_either_side_changes_nothing():
    """Here it is on the right; the original has it on the left."""
    encoder, right = build_tiny(TINY), random_features(B, S, LENGTHS)
    right["segment_ids"][np.arange(B), np.array(LENGTHS) - 1] = 2  # the last token's is a third
    for variable in encoder.trainable_variables:
        if "gamma" in variable.name:  # or tokens become alike from layer to layer
            variable.assign_add(tf.ones_like(variable))
    longer = {name: np.pad(value, [[0, 0], [0, 3]]) for name, value in right.items()}
    moved = [[np.roll(row, S - n) for row, n in zip(v, LENGTHS)] for v in right.values()]
    left = dict(zip(right, map(np.stack, moved), strict=True))
    expected = encoder(right)
    for features, begins in ((longer, [0] * B), (left, S - np.array(LENGTHS))):
        found = encoder(features)
        np.testing.assert_allclose(found.pooled, expected.pooled, atol=1e-5)
        for b, (begin, length) in enumerate(zip(begins, LENGTHS, strict=True)):
            states = found.sequence[b, begin : begin + length]
            np.testing.assert_allclose(states, expected.sequence[b, :length], atol=1e-5)
    nothing = {**right, "input_mask": np.zeros_like(right["input_mask"])}
    assert np.isfinite(encoder(nothing).sequence).all()

"""XLNet against the Model Garden's, against a plain loop of the equation, and by properties."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.model.xlnet_support import TINY, build, garden
from tests.model_support import normal, random_features

B, S, P = 4, 7, 3
LENGTHS = (7, 4, 6, 3)
CLOSE = {"atol": 2e-5, "rtol": 0}


def batch(lengths=LENGTHS, longest: int = S):
    """Features with three segments, the last token's a third."""
    features = random_features(B, longest, lengths)
    features["segment_ids"][np.arange(B), np.asarray(lengths) - 1] = 2
    return features


def order(seed: int = 3):
    """Permitted [B, S, S] of random orders, in which all see the first, and targets [B, P]."""
    draw = np.random.default_rng(seed)
    permitted, targets = np.zeros([B, S, S], np.float32), np.zeros([B, P], np.int32)
    for b, length in enumerate(LENGTHS):
        rank = np.concatenate([draw.permutation(length), np.arange(length, S)])
        permitted[b] = (rank[:, None] > rank) | (rank == 0)
        targets[b] = draw.choice(length, P, replace=False)
    return permitted, targets


def garden_masks(features):
    return {
        "segment_ids": tf.constant(features["segment_ids"]),
        "input_mask": tf.constant(features["input_mask"]),
    }


def assert_real_equal(found, expected, lengths=LENGTHS):
    for b, length in enumerate(lengths):
        np.testing.assert_allclose(found[b, :length], expected[b, :length], **CLOSE)


@pytest.mark.parametrize("changes", [{}, {"untie_biases": False}, {"clamp_length": 3}])
def test_the_garden_computes_the_same(changes):
    encoder, features = build(**changes), batch()
    expected, _ = garden(encoder)(features["input_ids"], **garden_masks(features))
    output = encoder(features)
    assert_real_equal(output.sequence, expected)
    last = np.asarray(LENGTHS) - 1
    np.testing.assert_array_equal(output.pooled, output.sequence.numpy()[np.arange(B), last])


def test_the_garden_computes_the_same_streams():
    encoder, features = build(), batch()
    permitted, targets = order()
    mask_embedding = normal(1, TINY.hidden_size)
    others = {
        **garden_masks(features),
        "permutation_mask": tf.constant(permitted, tf.int32),
    }
    mapping = {"target_mapping": tf.one_hot(targets, S), "masked_tokens": tf.zeros([B, S])}
    ids = features["input_ids"]
    content, _ = garden(encoder)(ids, **others)
    queries, _ = garden(encoder, mask_embedding)(ids, **others, **mapping)
    found = encoder.two_streams(features, permitted, targets, mask_embedding)
    assert_real_equal(found.content.sequence, content)
    np.testing.assert_allclose(found.queries, queries, **CLOSE)

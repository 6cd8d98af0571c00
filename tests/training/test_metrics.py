"""Metrics that are sums: against scikit-learn, and additive."""

import numpy as np
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from convbert.training import metrics


def test_auc_is_scikit_learns():
    rng = np.random.default_rng(0)
    labels = (rng.random([8, 500]) < 0.13).astype(np.int32)
    probabilities = 1 / (1 + np.exp(-(rng.normal(size=labels.shape) + 1.2 * labels - 2)))
    weights = (rng.random(labels.shape) < 0.7).astype(np.int32)
    sums = metrics.auc(tf.constant(probabilities, tf.float32), labels, weights)
    kept = weights > 0
    expected = roc_auc_score(labels[kept], probabilities[kept])
    assert 0.7 < expected < 0.9
    np.testing.assert_allclose(metrics.summarize({"auc": sums})["auc"], expected, atol=2e-4)


def test_sums_add_up_over_batches():
    values, weights = np.arange(12.0), np.arange(12) % 3
    whole = metrics.mean(tf.constant(values), tf.constant(weights))
    parts = sum(
        metrics.mean(tf.constant(v), tf.constant(w))
        for v, w in zip(np.split(values, 3), np.split(weights, 3))
    )
    np.testing.assert_allclose(whole, parts)
    expected = (values * weights).sum() / weights.sum()
    np.testing.assert_allclose(metrics.summarize({"x": whole})["x"], expected)

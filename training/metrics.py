"""Metrics as sums, which add up over steps, replicas and hosts without state."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

AUC_BINS = 2000


def mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the sums [2] of a weighted mean."""
    weights = tf.cast(weights, tf.float32)
    return tf.stack([tf.reduce_sum(tf.cast(values, tf.float32) * weights), tf.reduce_sum(weights)])


def exponential_of_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the sums [1, 2] of exp(weighted mean), such as a perplexity over all steps."""
    return mean(values, weights)[None]


def auc(probabilities: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the sums [2, AUC_BINS] of a ROC AUC: histograms of negatives and positives.

    `probabilities` are float32 [...] in [0, 1], `labels` and `weights` int32 [...], 0 or 1.
    """
    bins = tf.minimum(tf.cast(probabilities * AUC_BINS, tf.int32), AUC_BINS - 1)
    flat = tf.reshape(labels * AUC_BINS + bins, [-1])
    counted = tf.reshape(tf.cast(weights, tf.float32), [-1])
    counts = tf.math.unsorted_segment_sum(counted, flat, 2 * AUC_BINS)
    return tf.reshape(counts, [2, AUC_BINS])


def summarize(sums: dict[str, tf.Tensor]) -> dict[str, float]:
    """Turns summed metrics into values; one with an empty denominator is 0, as in ELECTRA."""
    return {name: _value(np.asarray(total, np.float64)) for name, total in sums.items()}


def _value(total: np.ndarray) -> float:
    if total.ndim == 1:
        return float(total[0] / total[1]) if total[1] else 0.0
    if total.shape == (1, 2):  # `exponential_of_mean`
        with np.errstate(over="ignore"):
            return float(np.exp(_value(total[0])))
    negatives, positives = total  # [BINS] each, by ascending probability
    pairs = negatives.sum() * positives.sum()
    below = np.cumsum(negatives) - negatives
    wins = (positives * (below + negatives / 2)).sum()  # pairs in the same bin count half
    return float(wins / pairs) if pairs else 0.0

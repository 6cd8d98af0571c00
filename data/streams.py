"""Options of tf.data pipelines."""

from __future__ import annotations

import tensorflow as tf

READ_AHEAD = 4  # prefetched batches


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without tf.data's autotuning thread.

    There is nothing to tune, and deleting an iterator would sometimes wait for this thread to wake
    up, for up to a minute.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)

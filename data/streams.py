"""Options of tf.data pipelines. TensorFlow is imported only where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

READ_AHEAD = 4  # prefetched batches


def batch_stream(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Finishes a pipeline of batches: fixed order, prefetching, no autotuning."""
    import tensorflow as tf

    options = tf.data.Options()
    options.deterministic = True
    return without_autotuning(dataset.with_options(options).prefetch(READ_AHEAD))


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without tf.data's autotuning thread.

    There is nothing to tune, and deleting an iterator would sometimes wait for this thread to wake
    up, for up to a minute.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)

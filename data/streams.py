"""Options of tf.data pipelines. TensorFlow is imported only where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

READ_AHEAD = 4  # batches that wait, ready


def batch_stream(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The end of a pipeline of batches: in a fixed order, read ahead, without autotuning."""
    import tensorflow as tf

    options = tf.data.Options()
    options.deterministic = True
    return without_autotuning(dataset.with_options(options).prefetch(READ_AHEAD))


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without the thread by which tf.data tunes one.

    There is nothing to tune, and whoever deletes an iterator would now and then wait for that
    thread, for up to a minute, until it wakes up by itself.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)

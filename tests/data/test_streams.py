"""Streams of batches: what they all have in common."""

import tensorflow as tf

from data.streams import READ_AHEAD, batch_stream, untuned


def test_untuned_keeps_what_a_stream_came_with():
    own = tf.data.Options()
    own.deterministic = True
    options = untuned(tf.data.Dataset.range(3).with_options(own)).options()
    assert options.autotune.enabled is False
    assert options.deterministic


def test_batches_are_read_ahead_in_order_and_untuned():
    read = []

    def note(number):
        read.append(int(number))
        return number

    numbers = tf.data.Dataset.range(20)
    numbers = numbers.map(lambda n: tf.py_function(note, [n], n.dtype))
    stream = batch_stream(numbers)
    assert stream.options().autotune.enabled is False
    assert stream.options().deterministic
    assert [int(n) for n in stream] == read == list(range(20))
    assert READ_AHEAD > 1

"""Streams of batches: what they all have in common."""

import time

import tensorflow as tf

from data.streams import READ_AHEAD, batch_stream


def test_batches_are_read_ahead_in_order_without_autotuning():
    read = []

    def note(number):
        read.append(int(number))
        return number

    numbers = tf.data.Dataset.range(20)
    numbers = numbers.map(lambda n: tf.py_function(note, [n], n.dtype))
    stream = batch_stream(numbers)
    assert stream.options().autotune.enabled is False
    assert stream.options().deterministic
    batches = iter(stream)
    assert int(next(batches)) == 0
    deadline = time.monotonic() + 60
    while len(read) < 1 + READ_AHEAD:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [int(n) for n in batches] == list(range(1, 20))
    assert read == list(range(20))

"""Where sentences are divided into words."""

import tensorflow as tf

from data.text.words import split_words


def test_words_stand_between_what_python_splits_at():
    characters = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    text = "".join(f" a{c}b " for c in characters)
    found = split_words(tf.constant([text]))
    assert [word.decode() for word in found.values.numpy()] == text.split()

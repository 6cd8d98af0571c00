"""The critic's loss of SCRIPT and the products that it is made of. Imports TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from model.kernels import vocabulary


def loss(form: str, positions: int, width: int, vocab_size: int, dtype: str = "float32"):
    """Loss and gradients of states [1, positions, width].

    `form` is "", the kernel, or "_reference", with all scores in memory.
    """
    function = getattr(vocabulary, f"log_sum_exp_cross_entropy{form}")
    factors = _factors(positions, width, vocab_size, dtype)
    labels = tf.cast(tf.random.uniform([1, positions]) > 0.1, tf.float32)
    weights = tf.fill([1, positions], 1.0 / positions)

    @tf.function(autograph=False)
    def compute():
        values = [tf.convert_to_tensor(factor) for factor in factors]
        with tf.GradientTape() as tape:
            tape.watch(values)
            value, _ = function(*values, labels, weights)
        return value, *tape.gradient(value, values)

    return _timed(compute, positions, width, vocab_size)


def products(positions: int, width: int, vocab_size: int, dtype: str = "float32"):
    """The three products alone, in blocks of as many positions, of scores and their gradients."""
    states, table, _ = _factors(positions, width, vocab_size, dtype)
    count, n = vocabulary._division(positions, vocab_size)

    @tf.function(autograph=False)
    def compute():
        def step(number, *_):
            part = states[0, number * n : (number + 1) * n]
            scores = tf.matmul(part, table, transpose_b=True)  # [n, V]
            to_states = tf.matmul(scores, table)
            with tf.control_dependencies([to_states]):  # one after the other, with all the cores
                to_table = tf.matmul(scores, part, transpose_a=True)
            return number + 1, to_states[:1], to_table

        start = (0, tf.zeros([1, width], dtype), tf.zeros([vocab_size, width], dtype))
        shapes = (tf.TensorShape([]), tf.TensorShape([None, width]), start[2].shape)
        condition = lambda number, *_: number < count  # noqa: E731
        return tf.while_loop(condition, step, start, shapes, parallel_iterations=1)[1:]

    return _timed(compute, positions, width, vocab_size)


def _factors(positions, width, vocab_size, dtype):
    tf.random.set_seed(0)
    states = tf.random.normal([1, positions, width])
    table = tf.random.normal([vocab_size, width], stddev=0.02)
    bias = tf.Variable(tf.zeros([vocab_size]))
    return tf.Variable(tf.cast(states, dtype)), tf.Variable(tf.cast(table, dtype)), bias


def _timed(compute, positions, width, vocab_size):
    def run():
        compute()[0].numpy()

    run.facts = {"flops": 3 * 2 * positions * width * vocab_size}
    return run

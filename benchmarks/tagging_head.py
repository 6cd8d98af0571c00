"""Seconds of a training step of tagging with a CRF head against a softmax, and of the chain alone.

    python -m benchmarks.tagging_head --size base --batch 32 --length 128 --tags 45

Both heads are on one encoder of random weights and take steps in turns, in one process; each token
is the first piece of a word, the longest chain that there can be. The chain alone is the loss and
its gradient for scores of words: with the gradient written out, as it is used, and by automatic
differentiation of the same recursion.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from absl import app, flags

from benchmarks.table import Report
from errors import main_with_clear_errors
from finetune.batches import TrainingBatches
from finetune.encoded import Encoded
from finetune.objective import FineTuning
from model import build_encoder, linear_chain, named_size
from model.crf_head import CrfHead
from model.linear_chain import ChainScores
from model.task_heads import TaggingHead
from training.distribution import create_strategy
from training.loop import Trainer
from training.optimizer import create_optimizer

_SIZE = flags.DEFINE_string("size", "base", "Size of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence.")
_TAGS = flags.DEFINE_integer("tags", 45, "Number of tags.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved steps of each head.")


def main(argv: list[str]) -> None:
    """Prints a row for the step and one for the chain: medians, and the median of the ratios."""
    report = Report({"what": "", "first s": ".4f", "second s": ".4f", "second / first": ".3f"})
    for name, pair in (
        ("step: softmax, CRF", steps()),
        ("chain: written out, automatic", chains(jit_compile=False)),
        ("chain under XLA: written out, automatic", chains(jit_compile=True)),
    ):
        report.row(name, *compared(*pair))
    report.end()


def compared(first: Callable, second: Callable) -> tuple[float, float, float]:
    """Medians of the seconds of both, and of their ratios, of calls in turns after one of each."""
    first(), second()
    found = []
    for _ in range(_ROUNDS.value):
        seconds = []
        for call in (first, second):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        found.append((*seconds, seconds[1] / seconds[0]))
    return tuple(map(statistics.median, zip(*found)))


def steps() -> tuple[Callable, Callable]:
    """A training step with each head, on the same encoder."""
    B, S, L = _BATCH.value, _LENGTH.value, _TAGS.value
    config = named_size(_SIZE.value)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, config.vocab_size, 2 * B * S).astype(np.int32)
    tokens = {"input_ids": ids, "segment_ids": 0 * ids, "tags": ids % L}
    tokens["tag_weight"] = np.ones(len(ids), np.float32)
    example = np.arange(2 * B, dtype=np.int32)
    encoded = Encoded(
        np.arange(2 * B + 1) * S, tokens, {"example": example, "window": 0 * example}, 0
    )
    strategy, encoder = create_strategy("one_device"), build_encoder(config)

    def step_of(head) -> Callable:
        objective = FineTuning(encoder, head)
        optimizer = create_optimizer("adam", 1e-4, 0.01, objective.trainable_variables)
        batches = TrainingBatches(encoded, B, 0, max_seq_length=S)
        trainer = Trainer(objective, optimizer, batches, seed=0, strategy=strategy)
        return lambda: float(trainer.train(tf.constant(1))["loss"])

    return step_of(TaggingHead(L)), step_of(CrfHead(L))


def chains(jit_compile: bool) -> tuple[Callable, Callable]:
    """The loss of a batch of chains with its gradient, in both ways."""
    B, S, L = _BATCH.value, _LENGTH.value, _TAGS.value
    emissions = tf.random.stateless_normal([B, S, L], [0, 1])
    tags = tf.random.stateless_uniform([B, S], [0, 2], 0, L, tf.int32)
    variables = [emissions]
    variables += [tf.random.stateless_normal(x, [0, 3]) * 0.1 for x in ([L], [L, L], [L])]
    lengths, joined = tf.fill([B], S), tf.zeros([B], tf.bool)
    path_scores, links = linear_chain._path_scores, linear_chain._links

    def written_out(emissions, scores):
        return linear_chain.negative_log_likelihood(emissions, tags, lengths, scores, joined)

    def automatic(emissions, scores):
        gold = path_scores(emissions, tags, lengths, scores, links(joined))
        return linear_chain.log_partition(emissions, lengths, scores) - gold

    def with_gradient(loss) -> Callable:
        @tf.function(autograph=False, jit_compile=jit_compile)
        def gradients():
            with tf.GradientTape() as tape:
                tape.watch(variables)
                total = tf.reduce_sum(loss(emissions, ChainScores(*variables[1:])))
            return tape.gradient(total, variables)

        return lambda: [value.numpy() for value in gradients()]

    return with_gradient(written_out), with_gradient(automatic)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

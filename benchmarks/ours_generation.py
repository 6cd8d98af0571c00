"""Generation by this project, as `benchmarks.ours` has the others."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from benchmarks.ours import random_ids
from model import CausalLMHead, EncoderConfig, build_encoder
from model.generation import Generator, Sampling
from training.tracing import plain_function

NO_END = -1  # no token ends a text, so that all systems add as many


def generation(fields: dict[str, Any], batch: int, prompt: int, new: int, cached: bool):
    """Adds the most probable token, `new` times, to texts of `prompt` tokens."""
    tf_keras.utils.set_random_seed(0)
    encoder = build_encoder(EncoderConfig(**fields))
    head = CausalLMHead(encoder.config, encoder.embeddings)
    head(tf.zeros([1, 1, encoder.hidden_size]))
    generate = Generator(encoder, head, NO_END, cached=cached)
    ids = random_ids(batch, prompt, encoder.config.vocab_size)

    @plain_function
    def run_graph(ids, lengths):
        options = Sampling(
            num_tokens=tf.fill([batch], new),
            temperature=tf.zeros([batch]),
            top_k=tf.zeros([batch], tf.int32),
            top_p=tf.ones([batch]),
            seed=tf.range(batch),
        )
        return generate(ids, lengths, options).ids

    def run():
        return run_graph(tf.constant(ids), tf.fill([batch], prompt)).numpy()

    run.facts = {"tokens": batch * new, "added": run()[:, prompt:].tolist()}
    return run

"""Data and runs of benchmarks.strategies. Imports TensorFlow."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.texts import made_up_words
from data import build
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from model.backbone import rematerialize
from pretrain.batches import Batches
from pretrain.build import build_objective, build_optimizer
from pretrain.hparams import PretrainingHParams, encoder_config, resolve_hparams
from pretrain.saved_settings import special_ids
from training import workers
from training.distribution import create_strategy
from training.loop import Trainer

BATCH, LENGTH, WORDS = 16, 32, 500


def make_data(folder: str) -> None:
    """Records of made-up texts, by the real builder."""
    draw, words = np.random.default_rng(0), made_up_words(WORDS)
    Vocabulary((*SPECIAL_TOKENS, *words)).save(os.path.join(folder, "vocabulary"))
    corpus = os.path.join(folder, "corpus.txt")
    with open(corpus, "w", encoding="utf-8") as file:
        for _ in range(300):
            file.write("\n".join(" ".join(draw.choice(words, 12)) for _ in range(6)) + "\n\n")
    options = {"corpus": corpus, "corpus_format": "text", "max_seq_length": LENGTH, "num_shards": 4}
    options |= {"output_dir": os.path.join(folder, "data"), "heldout_fraction": 0.1}
    with open(os.devnull, "w") as nowhere:
        stdout, sys.stdout = sys.stdout, nowhere
        try:
            build.build(build.BuildOptions(vocab=os.path.join(folder, "vocabulary"), **options))
        finally:
            sys.stdout = stdout


def hyper_parameters(vocab_size: int, steps: int, layers: int) -> PretrainingHParams:
    """Those of all runs."""
    values = {"model_size": "convbert-tiny", "train_batch_size": BATCH, "max_seq_length": LENGTH}
    values |= {"model_hparam_overrides": {"num_hidden_layers": layers}}
    values |= {"num_train_steps": steps, "num_warmup_steps": 10, "learning_rate": 3e-4}
    return resolve_hparams(values, vocab_size)


def train(
    name: str, variants: Sequence[tuple[int, bool, bool]], folder: str, steps: int, layers: int
) -> None:
    """Trains every variant by one strategy; the chief keeps losses and weights, see `read`.

    Args:
        variants: micro-batches, XLA and rematerialization of each run.
    """
    strategy, data = create_strategy(name), os.path.join(folder, "data")
    vocabulary = Vocabulary.load(data)
    hparams = hyper_parameters(vocabulary.size, steps, layers)
    config, ids = encoder_config(hparams, vocabulary.size), special_ids(vocabulary)
    share = BATCH // strategy.num_replicas_in_sync
    for number, (parts, xla, rematerialized) in enumerate(variants):
        tf_keras.backend.clear_session()
        tf_keras.utils.set_random_seed(0)
        with strategy.scope():
            objective = build_objective(hparams, config, ids)
            optimizer = build_optimizer(hparams, objective)
        if rematerialized:
            rematerialize(objective)
        batches = Batches(data, "train", hparams, BATCH, strategy, share // parts)
        settings = {"seed": 0, "strategy": strategy, "xla": xla, "micro_batches": parts}
        trainer = Trainer(objective, optimizer, batches, **settings)
        losses = [trainer.train(tf.constant(1))["loss"] for _ in range(steps)]
        trainer.close()
        if workers.current().is_chief:
            weights = [variable.numpy() for variable in objective.trainable_variables]
            np.savez(_file(folder, name, number), np.float64(losses), *weights)


def read(folder: str, strategy: str, number: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The losses of all steps, and the weights, of a run."""
    with np.load(_file(folder, strategy, number), allow_pickle=False) as arrays:
        losses, *weights = (arrays[f"arr_{i}"] for i in range(len(arrays)))
    return losses, weights


def _file(folder: str, strategy: str, number: int) -> str:
    return os.path.join(folder, f"{strategy.replace(':', '_')}-{number}.npz")

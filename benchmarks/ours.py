"""Systems of this project, each a function that returns the timed call. Imports TensorFlow.

Where a function takes `fields`, that is `dataclasses.asdict` of an EncoderConfig.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from convbert.analysis.operations import EXECUTED, pretraining
from convbert.benchmarks.random_model import MIXERS
from convbert.benchmarks.texts import SPECIAL_IDS, random_features
from convbert.common.settings import present
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import load_task
from convbert.finetune.hparams import FinetuningRunSettings
from convbert.finetune.hparams import resolve_hparams as resolve_task_hparams
from convbert.finetune.learner import Learner
from convbert.finetune.plan import Context, Plan, Trial
from convbert.finetune.task_data import load_task_data
from convbert.model import EncoderConfig, named_size
from convbert.pretrain.hparams import PretrainingHParams, encoder_config, resolve_hparams
from convbert.training.loop import Trainer
from convbert.training.tracing import temporary_graphs

PRODUCTS = 8  # of `matmul`

# Hyper-parameters of `pretraining_step` by system.
ATTENTION = {"conv_type": "noconv", "head_ratio": 1}
MASKED_LM = {**ATTENTION, "objective": "masked_lm"}
SELF_CRITIC = {"objective": "self_critic"}
MODERN = {"objective": "masked_lm", "model_size": "ettin-17m"}  # whatever the size of the others
CAUSAL = {"objective": "causal_lm", "model_hparam_overrides": {"causal": True}}
SYSTEMS: dict[str, dict[str, Any]] = {
    "ConvBERT": {},
    "ELECTRA": ATTENTION,
    "BERT": MASKED_LM,
    "ConvBERT masked LM": {"objective": "masked_lm"},
    "SCRIPT": {**ATTENTION, **SELF_CRITIC},
    "SCRIPT on ConvBERT": SELF_CRITIC,
    "causal transformer": {**ATTENTION, **CAUSAL},
    "causal mixed": CAUSAL,
    "ModernBERT": MODERN,
    "XLNet": {"objective": "permutation_lm", "model_size": "xlnet-{size}"},
    **{f"ModernBERT {n}": {**MODERN, "model_hparam_overrides": of} for n, of in MIXERS.items()},
}


def matmul(m: int, k: int, n: int, dtype: str = "float32"):
    """[m, k] times [k, n], `PRODUCTS` times over."""
    tf.random.set_seed(0)
    left = tf.Variable(tf.cast(tf.random.normal([m, k]), dtype))
    right = tf.Variable(tf.cast(tf.random.normal([k, n]), dtype))

    @tf.function
    def multiply():
        done = []
        for _ in range(PRODUCTS):
            # One after the other; without this, TensorFlow would compute their like only once.
            with tf.control_dependencies(done[-1:]):
                done.append(tf.matmul(left, right))
        return tf.stack([product[0, 0] for product in done])

    def run() -> None:
        multiply().numpy()

    vars(run).update(facts={"flops": 2 * m * k * n * PRODUCTS})
    return run


def step_hparams(
    size: str, batch: int, length: int, precision: str = "float32", **hparams: Any
) -> PretrainingHParams:
    """The resolved hyper-parameters of `pretraining_step`; `model_size` may say "xlnet-{size}"."""
    overrides = hparams.get("model_hparam_overrides", {})
    size = hparams.pop("model_size", "{size}").format(size=size)
    values = {
        "model_size": size,
        "vocab_size": overrides.get("vocab_size", named_size(size).vocab_size),
        "max_seq_length": length,
        "train_batch_size": batch,
        "precision": precision,
        **hparams,
    }
    return resolve_hparams(values, values["vocab_size"])


def step_flops(hparams: PretrainingHParams) -> float:
    """Operations of the model's matrix products in one training step.

    Forward and backward pass; nothing for lookups, and masked slots alone for the generator's head.
    """
    tokens = present(hparams.train_batch_size) * hparams.max_seq_length
    return pretraining(hparams, EXECUTED).matrix * (1 + EXECUTED.backward) * tokens


def step_features(hparams: PretrainingHParams) -> dict[str, np.ndarray]:
    """One batch without padding, int32 [B, S]."""
    shape = present(hparams.train_batch_size), hparams.max_seq_length
    return random_features(*shape, present(hparams.vocab_size))


def step_trainer(hparams: PretrainingHParams, **options: Any) -> Trainer:
    """The trainer of a new network, fed with `step_features` over and over.

    `options` are those of `Trainer`.
    """
    tf_keras.utils.set_random_seed(0)
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    config = encoder_config(hparams, present(hparams.vocab_size))
    objective = hparams.build_objective(config, SPECIAL_IDS)
    return Trainer(
        objective,
        hparams.build_optimizer(objective),
        lambda start_step: tf.data.Dataset.from_tensors(step_features(hparams)).repeat(),
        seed=0,
        strategy=tf.distribute.get_strategy(),
        **options,
    )


def seconds_per_step(
    hparams: PretrainingHParams, tokens: int = 1024, steps: int = 3, rounds: int = 1
) -> float:
    """The time of a step here: the median of `rounds`, of about `tokens` tokens, times the rest."""
    whole = present(hparams.train_batch_size)
    batch = min(whole, max(1, tokens // hparams.max_seq_length))
    times = []
    with temporary_graphs():
        # Ids of `random_features` begin at 1,000, and a vocabulary may be of the four bases of DNA.
        size = max(present(hparams.vocab_size), 1100)
        trainer = step_trainer(
            dataclasses.replace(hparams, train_batch_size=batch, vocab_size=size)
        )
        trainer.train(1)
        for _ in range(rounds):
            started = time.monotonic()
            trainer.train(steps)
            times.append((time.monotonic() - started) / steps)
    return statistics.median(times) * whole / batch


def pretraining_step(xla: bool = False, steps: int = 1, **values: Any):
    """`steps` whole training steps as run_pretraining.py takes them, input apart.

    `values` are the arguments of `step_hparams`.
    """
    hparams = step_hparams(**values)
    trainer = step_trainer(hparams, xla=xla)

    def run() -> None:
        trainer.train(steps)

    vars(run).update(facts={"flops": step_flops(hparams)}, steps=steps)
    return run


def finetuning_trial(
    fields: dict[str, Any],
    *,
    task: str,
    data_dir: str,
    vocab: str,
    batch: int,
    precision: str = "float32",
    max_examples: int | None = None,
) -> tuple[Trial, Context]:
    """A run of fine-tuning from random weights, whose folder nothing writes to."""
    declared = load_task(task)
    values = {"train_batch_size": batch, "precision": precision, "max_train_examples": max_examples}
    config, vocabulary = EncoderConfig(**fields), Vocabulary.load(vocab)
    hparams = resolve_task_hparams({**values, "init": "random"}, declared, config)
    data = load_task_data(declared, data_dir, vocabulary, hparams, test=False)
    plan = Plan("", data_dir, "", [declared], FinetuningRunSettings(), {}, {})
    context = Context(plan, tf.distribute.get_strategy(), vocabulary, config, {}, None, None)
    return Trial("", 0, {}, hparams, data), context


def finetuning_epoch(fields: dict[str, Any], batch: int, precision: str = "float32", **data: Any):
    """As many steps of fine-tuning random weights as there are full batches in an epoch.

    Reading and tokenizing come before; batches are of similar length (see `TrainingBatches`).
    """
    tf_keras.mixed_precision.set_global_policy(precision)
    trial, context = finetuning_trial(fields, batch=batch, precision=precision, **data)
    trainer = present(Learner(trial, context).trainer)
    steps = max(1, len(present(trial.data.train)) // batch)

    def run() -> None:
        trainer.train(steps)

    vars(run).update(facts={"examples": steps * batch})
    return run

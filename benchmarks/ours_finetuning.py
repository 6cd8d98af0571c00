"""Fine-tuning by this project, as `benchmarks.ours` has the others."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from benchmarks.ours import SCHEDULE
from data.vocabulary import Vocabulary
from finetune.batches import TrainingBatches
from finetune.catalogue import load_task
from finetune.encoded import Encoded
from finetune.hparams import FinetuningHParams, resolve_hparams
from finetune.objective import FineTuning, learning_rate_scales
from finetune.task import Task
from finetune.task_data import load_task_data
from model import EncoderConfig, build_encoder
from training.loop import Trainer
from training.optimizer import WarmupTimesDecay, create_optimizer


def finetuning_rows(
    fields: dict[str, Any],
    *,
    task: str,
    data_dir: str,
    vocab: str,
    batch: int,
    precision: str = "float32",
    max_examples: int = 0,
):
    """The task, its training rows (the first `max_examples`, 0: all), and its hyper-parameters."""
    declared = load_task(task)
    hparams = resolve_hparams(
        {"train_batch_size": batch, "precision": precision}, declared, EncoderConfig(**fields)
    )
    vocabulary = Vocabulary.load(vocab)
    data = load_task_data(declared, data_dir, vocabulary, hparams, cache_dir=None, test=False)
    rows = data.train
    if 0 < max_examples < len(rows):
        end = rows.row_splits[max_examples]
        rows = Encoded(
            rows.row_splits[: max_examples + 1],
            {name: column[:end] for name, column in rows.tokens.items()},
            {name: column[:max_examples] for name, column in rows.sequences.items()},
            rows.truncated,
        )
    return data.task, rows, hparams


def networks(declared: Task, config: EncoderConfig, hparams: FinetuningHParams):
    """The objective of random weights, and its optimizer."""
    encoder = build_encoder(config)
    head = declared.plugin.head(declared, encoder.config, hparams)
    objective = FineTuning(encoder, head, hparams.loss_reduction)
    optimizer = create_optimizer(
        hparams.optimizer,
        WarmupTimesDecay(hparams.learning_rate, *SCHEDULE),
        hparams.weight_decay_rate,
        objective.trainable_variables,
        learning_rate_scales(objective, hparams.layerwise_lr_decay),
    )
    return objective, optimizer


def finetuning_epoch(fields: dict[str, Any], batch: int, precision: str = "float32", **data: Any):
    """As many steps of fine-tuning random weights as there are full batches in an epoch.

    Reading and tokenizing come before; batches are of similar length (see `TrainingBatches`).
    """
    tf_keras.utils.set_random_seed(0)
    tf_keras.mixed_precision.set_global_policy(precision)
    declared, rows, hparams = finetuning_rows(fields, batch=batch, precision=precision, **data)
    objective, optimizer = networks(declared, EncoderConfig(**fields), hparams)
    batches = TrainingBatches(
        rows,
        batch,
        hparams.seed,
        max_seq_length=hparams.max_seq_length,
        length_buckets=hparams.length_buckets,
    )
    trainer = Trainer(objective, optimizer, batches, seed=0, strategy=tf.distribute.get_strategy())
    steps = max(1, len(rows) // batch)

    def run():
        trainer.train(tf.constant(steps))

    run.facts = {"examples": steps * batch}
    return run

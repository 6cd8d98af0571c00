"""XLNet of this project, as `benchmarks.ours` has the others. Imports TensorFlow.

`fields` is `dataclasses.asdict` of an XLNetConfig.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.ours import SCHEDULE, random_ids
from finetune.objective import FineTuning
from model import build_backbone
from model.task_heads import ClassificationHead
from model.xlnet.config import XLNetConfig
from training.loop import Trainer
from training.optimizer import WarmupTimesDecay, create_optimizer


def inference(fields: dict[str, Any], batch: int, length: int, precision: str = "float32"):
    """The encoder's forward pass over a full batch (no padding)."""
    features = _features(batch, length, fields["vocab_size"])
    encoder = _encoder(fields, precision)

    @tf.function
    def forward(features):
        return encoder(features).sequence

    features = tf.nest.map_structure(tf.constant, features)
    return lambda: forward(features).numpy()


def classification_step(
    fields: dict[str, Any], batch: int, length: int, precision: str = "float32"
):
    """A step of fine-tuning for two classes, input apart; returns the loss."""
    encoder = _encoder(fields, precision)
    head = ClassificationHead(2, encoder.config)
    objective = FineTuning(encoder, head, "mean")
    optimizer = create_optimizer(
        "adam", WarmupTimesDecay(3e-5, *SCHEDULE), 0.01, objective.trainable_variables
    )
    rows = _features(batch, length, fields["vocab_size"])
    rows |= {"label": np.arange(batch, dtype=np.int32) % 2, "weight": np.ones(batch, np.float32)}
    trainer = Trainer(
        objective,
        optimizer,
        lambda start_step: tf.data.Dataset.from_tensors(rows).repeat(),
        seed=0,
        strategy=tf.distribute.get_strategy(),
    )
    return lambda: float(trainer.train(tf.constant(1))["loss"])


def _encoder(fields: dict[str, Any], precision: str):
    tf_keras.utils.set_random_seed(0)
    tf_keras.mixed_precision.set_global_policy(precision)
    return build_backbone(XLNetConfig(**fields))


def _features(batch: int, length: int, vocab_size: int) -> dict[str, np.ndarray]:
    ids = random_ids(batch, length, vocab_size)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}

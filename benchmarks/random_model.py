"""Model directories of random weights, for benchmarks of exported models.

python -m benchmarks.random_model SIZE FOLDER [classifier]
"""

from __future__ import annotations

import dataclasses
import sys

import tensorflow as tf
import tf_keras

from benchmarks.texts import made_up_vocabulary
from checkpoints.model_directory import (
    Conversion,
    Networks,
    describe_pretraining,
    save,
    save_fine_tuned,
)
from data.vocabulary import Vocabulary
from finetune import declaration
from finetune.hparams import resolve_hparams
from finetune.load import TaskModel
from finetune.objective import FineTuning
from model import Encoder, EncoderConfig, build_encoder, named_size


def make_model(size: str, folder: str) -> None:
    """A pre-training model directory of random weights and a made-up vocabulary."""
    config, vocabulary, encoder = _random_encoder(size)
    hparams = describe_pretraining(config, vocabulary)
    save(Conversion(config, hparams, vocabulary, Networks(encoder)), folder, {})


def make_classifier(size: str, folder: str) -> None:
    """A fine-tuned model directory of two labels, whose head transformers has."""
    config, vocabulary, encoder = _random_encoder(size)
    values = {"name": "made_up", "kind": "classification", "labels": ["no", "yes"]}
    values |= {"files": {"train": "train.jsonl", "dev": "dev.jsonl"}}
    task = declaration.parse({**values, "columns": {"text_a": "text", "label": "label"}}, "task")
    hparams = resolve_hparams({"classifier": "dense"}, task, config)
    objective = FineTuning(encoder, task.plugin.head(task, config, hparams))
    record = {"hparams": {**dataclasses.asdict(hparams), "vocabulary": vocabulary.digest}}
    save_fine_tuned(TaskModel(objective, task, hparams, vocabulary, record), folder, {})


def _random_encoder(size: str) -> tuple[EncoderConfig, Vocabulary, Encoder]:
    config = named_size(size)
    vocabulary = made_up_vocabulary(config.vocab_size)
    tf_keras.utils.set_random_seed(0)
    encoder = build_encoder(config)
    for variable in encoder.variables:  # so that no bias is zero, no scale one
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.02))
    return config, vocabulary, encoder


if __name__ == "__main__":
    (make_classifier if sys.argv[3:] == ["classifier"] else make_model)(*sys.argv[1:3])

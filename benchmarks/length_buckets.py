"""Examples per second of fine-tuning with batches padded to their own length, beside fixed length.

    python -m benchmarks.length_buckets --model_dir MODEL --task cola --data_dir GLUE

Both train the same network on the same rows in the same order, in turns in one process; only the
padding differs. Then one network predicts the dev split both ways, and the largest difference is
printed.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from absl import app, flags

from data.vocabulary import Vocabulary
from errors import main_with_clear_errors
from finetune.batches import TrainingBatches
from finetune.catalogue import load_task
from finetune.hparams import FinetuningHParams, resolve_hparams
from finetune.objective import FineTuning
from finetune.task_data import TaskData, load_task_data
from finetune.trial import predict
from model import EncoderConfig
from pretrain.load import load_encoder
from training.loop import Trainer
from training.optimizer import create_optimizer

_MODEL_DIR = flags.DEFINE_string("model_dir", None, "Model directory of run_pretraining.py.")
_TASK = flags.DEFINE_string("task", "cola", "As for run_finetuning.py.")
_DATA_DIR = flags.DEFINE_string("data_dir", "", "Likewise.")
_MAX_SEQ_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "The fixed length.")
_STEPS = flags.DEFINE_integer("steps", 100, "Steps of a measurement.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Measurements of each, in turns.")


def main(argv: list[str]) -> None:
    """Prints a line per round, the median of the ratios, and the difference of predictions."""
    config = EncoderConfig.load(_MODEL_DIR.value)
    task = load_task(_TASK.value)
    hparams = {
        name: resolve_hparams(
            {"max_seq_length": _MAX_SEQ_LENGTH.value, "length_buckets": name == "buckets"},
            task,
            config,
        )
        for name in ("buckets", "fixed")
    }
    vocabulary = Vocabulary.load(_MODEL_DIR.value)
    data = load_task_data(
        task, _DATA_DIR.value, vocabulary, hparams["fixed"], cache_dir=None, test=False
    )
    trainers = {name: create_trainer(settings, data) for name, settings in hparams.items()}
    ratios = []
    for _ in range(_ROUNDS.value):
        rates = {}
        for name, trainer in trainers.items():
            start = time.perf_counter()
            trainer.train(tf.constant(_STEPS.value))
            seconds = time.perf_counter() - start
            rates[name] = _STEPS.value * hparams[name].train_batch_size / seconds
        ratios.append(rates["buckets"] / rates["fixed"])
        shown = ", ".join(f"{name} {rate:.0f} examples/s" for name, rate in rates.items())
        print(f"{shown}; ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {np.median(ratios):.2f}")

    compare_predictions(trainers["buckets"].objective, data, hparams)


def create_trainer(hparams: FinetuningHParams, data: TaskData) -> Trainer:
    """A trainer of a new network, warm: its step is traced and its pipeline filled."""
    encoder = load_encoder(_MODEL_DIR.value)
    head = data.task.plugin.head(data.task, encoder.config, hparams)
    objective = FineTuning(encoder, head)
    trainer = Trainer(
        objective,
        create_optimizer("adam", 1e-5, 0.01, objective.trainable_variables),
        TrainingBatches(
            data.train,
            hparams.train_batch_size,
            0,
            length_buckets=hparams.length_buckets,
            max_seq_length=hparams.max_seq_length,
        ),
        seed=0,
        strategy=tf.distribute.get_strategy(),
    )
    trainer.train(tf.constant(5))
    return trainer


def compare_predictions(
    objective: FineTuning, data: TaskData, hparams: dict[str, FinetuningHParams]
) -> None:
    """Prints how far one network's predictions of the dev split differ between the paddings."""
    split = data.splits[data.task.dev[0]]
    outputs = [
        predict(
            objective,
            data.task,
            split,
            batch_size=32,
            hparams=settings,
            strategy=tf.distribute.get_strategy(),
        )
        for settings in hparams.values()
    ]
    for name in outputs[0]:
        difference = np.abs(outputs[0][name] - outputs[1][name]).max()
        print(f"largest difference of {name} over {len(split.encoded):,} rows: {difference:.1e}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["model_dir"])
    app.run(main_with_clear_errors(main))

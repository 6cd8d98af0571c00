"""Batches of a data folder, for training and evaluation."""

from __future__ import annotations

import tensorflow as tf

from convbert.common.errors import InputError, located
from convbert.common.settings import present
from convbert.data.input_pipeline import count_records, pretraining_dataset, record_files
from convbert.pretrain.hparams import PretrainingHParams, RunSettings, check_data
from convbert.training import workers
from convbert.training.distribution import micro_batches


class Batches:
    """Creates datasets of the batches of a split. Checks its files at once, for early errors.

    `split` is "train", shuffled and endless, or "heldout", one pass in order. The `offset` of
    training examples is that of `pretraining_dataset`. `files` are the record files,
    `micro_batches` the number of these in each device's share of a batch.
    """

    in_graph = True  # see `training.loop.Trainer`

    def __init__(
        self,
        data_dir: str,
        split: str,
        hparams: PretrainingHParams,
        run: RunSettings,
        strategy: tf.distribute.Strategy,
        offset: int = 0,
    ):
        devices, name = strategy.num_replicas_in_sync, "train_batch_size"
        batch_size = present(hparams.train_batch_size)
        if split == "heldout":
            name, batch_size = "eval_batch_size", run.eval_batch_size or batch_size
        if batch_size % devices:
            raise InputError(
                f"`{name}` should be divisible by the {devices} devices. Received: {batch_size}"
            )
        with located(f"`{name}` of {batch_size}"):
            self.micro_batches = micro_batches(batch_size, devices, run.micro_batch_size)
        self.files = record_files(data_dir, split)
        self._packed = check_data(data_dir, hparams)
        self._training, self._hparams, self._batch_size = split == "train", hparams, batch_size
        self._offset = offset if self._training else 0
        self()

    def __call__(self, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches from a step on; of each batch, this worker's share."""
        return pretraining_dataset(
            self.files,
            batch_size=self._batch_size,
            max_seq_length=self._hparams.max_seq_length,
            vocab_size=self._hparams.vocab_size,
            packed=self._packed,
            seed=self._hparams.seed,
            start_step=start_step,
            offset=self._offset,
            training=self._training,
            worker=workers.index,
            workers=workers.count,
        )

    def examples(self, num_steps: int) -> int:
        """Returns the number of examples in the first `num_steps` batches; -1: in all."""
        total = sum(count_records(self.files).values())
        return total if num_steps < 0 else min(total, num_steps * self._batch_size)

"""Hosts of a TPU that make their own batches: together, those of one process."""

import itertools
import types

import numpy as np
import tensorflow as tf

from data import records
from data.input_pipeline import pretraining_dataset
from training.feeding import batches_per_host

B, S = 8, 4
HOSTS, REPLICAS = 2, 4  # two of each host


def hosts_of(create_dataset, step):
    """The dataset of each host, without the hosts."""
    contexts = [tf.distribute.InputContext(HOSTS, number, REPLICAS) for number in range(HOSTS)]
    strategy = types.SimpleNamespace(
        num_replicas_in_sync=REPLICAS,
        distribute_datasets_from_function=lambda function: [*map(function, contexts)],
    )
    return batches_per_host(strategy, create_dataset, step)


def test_the_shares_of_the_hosts_replicas_are_the_batch(tmp_path):
    ids = np.repeat(np.arange(30, dtype=np.int32)[:, None], S, 1)
    ones = np.ones_like(ids)
    path = str(tmp_path / "records")
    records.write_record_file(path, [records.encode_examples(ids, ones, 0 * ones)])
    options = {"batch_size": B, "max_seq_length": S, "seed": 1}

    def create(step, host=0, hosts=1):
        return pretraining_dataset([path], start_step=step, worker=host, workers=hosts, **options)

    hosts = hosts_of(create, 3)
    for dataset in hosts:
        assert dataset.element_spec["input_ids"].shape == [B // REPLICAS, S]
    streams = [dataset.as_numpy_iterator() for dataset in hosts]
    for batch in itertools.islice(create(3).as_numpy_iterator(), 5):
        # Each host's replicas take an element each.
        parts = [next(stream) for stream in streams for _ in range(REPLICAS // HOSTS)]
        for name, value in batch.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), value)

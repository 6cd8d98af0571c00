"""How batches come to the replicas of a strategy."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable

import tensorflow as tf

from backend import on_tpu
from data.streams import without_autotuning

_THIS_MACHINE = "/job:localhost/replica:0/task:0/device:CPU:0"


class Feeding(enum.Enum):
    """Who makes the batches, and who cuts them."""

    # One iterator, in the graph of the loop of steps; each replica takes its rows of the batch.
    GLOBAL = enum.auto()
    # Each host of a TPU has an iterator of its own replicas' rows, in the graph of the loop.
    PER_HOST = enum.auto()
    # This process passes batches to the graph of one step, which is traced for each shape.
    # Each replica takes its rows.
    FED = enum.auto()


def feeding(strategy: tf.distribute.Strategy, create_dataset: Callable) -> Feeding:
    """How the batches of `create_dataset` come to a strategy's replicas.

    A TPU's program has static shapes, and its hosts run graphs of TensorFlow operations without
    this process's Python. So batches of several lengths, or of a Python generator, are fed.

    Args:
        create_dataset: has a true attribute `per_host` where it takes `host` and `hosts`, and its
            batches are of static shape and made by TensorFlow operations alone.
    """
    if not on_tpu(strategy):
        return Feeding.GLOBAL
    return Feeding.PER_HOST if getattr(create_dataset, "per_host", False) else Feeding.FED


def on_this_machine(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager:
    """Where iterators over batches are made that this process's Python makes.

    All else runs on the first host of a TPU, which may be another machine.
    """
    return tf.device(_THIS_MACHINE) if on_tpu(strategy) else contextlib.nullcontext()


def batches_per_host(
    strategy: tf.distribute.Strategy, create_dataset: Callable[..., tf.data.Dataset], step: int
) -> tf.distribute.DistributedDataset:
    """The batches from a step on, made by each host for its own replicas.

    Args:
        create_dataset: of (step, host, hosts): the dataset of a host's share of each batch,
            [B / hosts, ...]; the first host's replicas are the first.

    Returns:
        A dataset of features [B / replicas, ...] for each replica, of static shape.
    """
    replicas = strategy.num_replicas_in_sync

    def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        hosts = context.num_input_pipelines
        dataset = create_dataset(step, host=context.input_pipeline_id, hosts=hosts)
        own = tf.nest.flatten(dataset.element_spec)[0].shape[0]
        # Its replicas take an element each, one after the other.
        return without_autotuning(dataset.rebatch(own * hosts // replicas, drop_remainder=True))

    return strategy.distribute_datasets_from_function(of_host)

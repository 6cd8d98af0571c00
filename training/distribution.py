"""Devices: which strategy a flag names, and sums over its replicas."""

from __future__ import annotations

import contextlib
import os
import sys

import tensorflow as tf

from convbert.common.backend import on_tpu
from convbert.common.errors import InputError, reason
from convbert.training import workers


def create_strategy(name: str, tpu: str | None = None) -> tf.distribute.Strategy:
    """The distribution strategy called `name`. Call it before anything else uses TensorFlow.

    Args:
        name: "one_device": the first GPU, or the CPU. "mirrored": all GPUs; on a machine without
            one, two logical CPU devices. "mirrored:N": the first N GPUs, or N logical CPU devices.
            "multi_worker": all GPUs of each worker, or its CPU; see training.workers.
            "tpu": all cores of a TPU.
        tpu: "local", an address grpc://HOST:PORT, or the name of a Cloud TPU. Default: that of the
            environment's TPU_NAME, else the machine's own.
    """
    kind, count = workers.parse_strategy(name)
    if tpu is not None and kind != "tpu":
        raise InputError(f"--tpu is for --strategy tpu. Received: --strategy {name}")
    if kind == "one_device":
        return tf.distribute.get_strategy()
    if kind == workers.MULTI_WORKER:
        if workers.strategy is None:
            raise InputError(f"--strategy {kind} is not for this command")
        return workers.strategy
    if kind == "tpu":
        return _create_tpu(tpu or os.environ.get("TPU_NAME") or "local")
    gpus = tf.config.list_physical_devices("GPU")
    wanted = count or len(gpus) or 2
    if not gpus:
        print(f"--strategy {name}: no GPU found, {wanted} logical CPU devices", file=sys.stderr)
        cpu = tf.config.list_physical_devices("CPU")[0]
        if len(tf.config.get_logical_device_configuration(cpu) or ()) < wanted:
            # TensorFlow fixes them at first use.
            parts = [tf.config.LogicalDeviceConfiguration() for _ in range(wanted)]
            tf.config.set_logical_device_configuration(cpu, parts)
    devices = tf.config.list_logical_devices("GPU" if gpus else "CPU")
    if not 1 <= wanted <= len(devices):
        raise InputError(f"--strategy {name}: the machine has {len(devices)} devices")
    # Collectives between logical CPU devices mix up their tensors when a process has used more than
    # one strategy; summing on one device cannot. None is the default: NCCL between GPUs.
    reduction = None if gpus else tf.distribute.ReductionToOneDevice()
    names = [device.name for device in devices[:wanted]]
    return tf.distribute.MirroredStrategy(names, cross_device_ops=reduction)


def _create_tpu(name: str) -> tf.distribute.TPUStrategy:
    """Connects to a TPU, which loses what was on it; TensorFlow's resolver knows names."""
    resolver_of = tf.distribute.cluster_resolver.TPUClusterResolver
    try:
        resolver = resolver_of(tpu=name, job_name="worker")
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver, make_master_device_default=False)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        raise InputError(
            f"--tpu {name}: there is no TPU, or this is not TensorFlow for TPUs, tensorflow-tpu"
            f" ({reason(error)})"
        ) from error
    if name != "local":
        # What is not placed elsewhere runs on the TPU's first host: the input pipeline, the loop of
        # steps. TensorFlow would say so for the thread alone that connected.
        tf.device("/job:worker/replica:0/task:0").__enter__()
    return tf.distribute.TPUStrategy(resolver)


def micro_batches(batch_size: int, devices: int, micro_batch_size: int | None) -> int:
    """Returns the number of micro-batches that each device's share of a batch is cut into.

    `batch_size` is over all devices, which divide it; `micro_batch_size` is of a device at a time,
    by default its share, which it should divide.
    """
    share = batch_size // devices
    if share % (micro_batch_size or share):
        raise InputError(
            f"`micro_batch_size` should divide the {share} sequences that each device has of a"
            f" batch. Received: {micro_batch_size}"
        )
    return share // (micro_batch_size or share)


def on_this_machine(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager:
    """Where iterators over batches are made that this process's Python makes.

    All else runs on the first host of a TPU, which may be another machine.
    """
    this = "/job:localhost/replica:0/task:0/device:CPU:0"
    return tf.device(this) if on_tpu(strategy) else contextlib.nullcontext()


def own_rows(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """This replica's rows of a batch, from inside a replica; the first has the first.

    TensorFlow's own distribution of a dataset would give each device a pipeline of its own, with
    autotuning (why not: `data.streams`), to copy some hundred kilobytes ahead.

    Args:
        features: tensors [B, ...] of this worker's share of the batch, which its replicas divide.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync // workers.count
    if replicas == 1:
        return features
    number = context.replica_id_in_sync_group % replicas
    # Stacking keeps the shape known, which a slice at `number` would not.
    return {k: tf.stack(tf.split(v, replicas))[number] for k, v in features.items()}


def replica_number() -> int | tf.Tensor:
    """The number of this replica among all, from 0, from inside a replica."""
    context = tf.distribute.get_replica_context()
    return context.replica_id_in_sync_group if context.num_replicas_in_sync > 1 else 0


def sum_over_replicas(tensors):
    """Sums a nest of tensors over the replicas, from inside a replica."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

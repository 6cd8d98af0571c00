"""Devices: the strategy that a flag names, its fastest settings, sums over its replicas."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from convbert.common.backend import on_tpu
from convbert.common.errors import InputError, reason
from convbert.training import workers

BFLOAT16_SINCE = (8, 0)  # compute capability of NVIDIA GPUs with bfloat16 matrix units


def create_strategy(name: str, tpu: str | None = None) -> tf.distribute.Strategy:
    """Creates the distribution strategy called `name`. Call it before any other TensorFlow use.

    Args:
        name: "one_device": the first GPU, or the CPU. "mirrored": all GPUs, or two logical CPU
            devices if there is none. "mirrored:N": the first N GPUs, or N logical CPU devices.
            "multi_worker": all GPUs of each worker, or its CPU; see training.workers.
            "tpu": all cores of a TPU.
        tpu: "local", an address grpc://HOST:PORT, or the name of a Cloud TPU. Default: the value of
            the environment variable TPU_NAME, else the machine's own TPU.
    """
    kind, count = workers.parse_strategy(name)
    if tpu is not None and kind != "tpu":
        raise InputError(f"--tpu is for --strategy tpu. Received: --strategy {name}")
    if kind == "one_device":
        return tf.distribute.get_strategy()
    if kind == workers.MULTI_WORKER:
        if workers.strategy is None:
            raise InputError(f"--strategy {kind} is not supported by this command")
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
    if wanted > len(devices):
        raise InputError(f"--strategy {name}: the machine has {len(devices)} devices")
    # Collectives between logical CPU devices mix up tensors if a process has used more than one
    # strategy; summing on one device does not. None is the default: NCCL between GPUs.
    reduction = None if gpus else tf.distribute.ReductionToOneDevice()
    names = [device.name for device in devices[:wanted]]
    return tf.distribute.MirroredStrategy(names, cross_device_ops=reduction)


def _create_tpu(name: str) -> tf.distribute.TPUStrategy:
    """Connects to a TPU, which resets it; TensorFlow resolves names."""
    resolver_of = tf.distribute.cluster_resolver.TPUClusterResolver
    try:
        resolver = resolver_of(tpu=name, job_name="worker")
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver, make_master_device_default=False)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        said = f"there is no TPU, or TensorFlow is not tensorflow-tpu ({reason(error)})"
        raise InputError(f"--tpu {name}: {said}") from error
    if name != "local":
        # Operations without a device, such as the input pipeline and the loop of steps, run on the
        # TPU's first host. TensorFlow would set this only for the thread that connected.
        tf.device("/job:worker/replica:0/task:0").__enter__()
    return tf.distribute.TPUStrategy(resolver)


def fast_values(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns the fastest `precision` and `xla` for a strategy's devices, unless the defaults."""
    if on_tpu(strategy):  # compiles everything anyway
        return {"precision": "mixed_bfloat16"}
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return {}
    details = tf.config.experimental.get_device_details(gpus[0])
    has_bfloat16 = (details.get("compute_capability") or (0, 0)) >= BFLOAT16_SINCE
    return ({"precision": "mixed_bfloat16"} if has_bfloat16 else {}) | {"xla": True}


def chosen_values(
    fast: Mapping[str, Any], said: Collection[str], recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the values of `fast` that are not set otherwise; prints them to standard error.

    `said` are values of the recipe, --hparams and flags; `recorded` those of a resumed run, which
    devices do not change.
    """
    values = {name: recorded.get(name, value) for name, value in fast.items() if name not in said}
    if values:
        shown = ", ".join(f"{name} {json.dumps(value)}" for name, value in values.items())
        print(f"fast here: {shown}; a flag or --hparams can say otherwise", file=sys.stderr)
    return values


def micro_batches(batch_size: int, devices: int, micro_batch_size: int | None) -> int:
    """Returns the number of micro-batches in each device's share of a batch.

    `batch_size` is global, a multiple of `devices`; `micro_batch_size` is per device. It should
    divide the device's share, its default.
    """
    share = batch_size // devices
    if share % (micro_batch_size or share):
        raise InputError(
            f"`micro_batch_size` should divide the {share} sequences of a batch that each device"
            f" has. Received: {micro_batch_size}"
        )
    return share // (micro_batch_size or share)


def on_this_machine(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager:
    """Returns the device scope for iterators over batches made by this process's Python.

    Everything else runs on the first host of a TPU, which may be another machine.
    """
    this = "/job:localhost/replica:0/task:0/device:CPU:0"
    return tf.device(this) if on_tpu(strategy) else contextlib.nullcontext()


def own_rows(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns this replica's part of a batch, inside a replica; the first has the first part.

    `features` [B, ...] are this worker's share of the batch. TensorFlow's distributed datasets
    would give each device its own pipeline, with autotuning (see `data.streams` for the problem),
    to prefetch some hundred kilobytes.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync // workers.count
    if replicas == 1:
        return features
    number = context.replica_id_in_sync_group % replicas
    # Stacking keeps the static shape, which a slice at `number` would lose.
    return {k: tf.stack(tf.split(v, replicas))[number] for k, v in features.items()}


def sum_over_replicas(tensors):
    """Sums a nest of tensors over the replicas, inside a replica."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

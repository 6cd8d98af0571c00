"""Connecting to a TPU: the resolver, its initialisation and the strategy."""

from __future__ import annotations

import socket
import threading
import urllib.error
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from errors import InputError, reason
from training.tpu_address import TpuAddress

# Seconds until a TPU that does not answer is given up. Initialising a large slice takes a minute.
PATIENCE = 300.0
REACHED_WITHIN = 10.0  # seconds for a host to accept a connection
WHEEL = "tensorflow-tpu"
_JOB = "worker"


def create_tpu_strategy(address: TpuAddress) -> tf.distribute.TPUStrategy:
    """Connects to a TPU, initialises it, and returns the strategy of all its cores.

    Call it before anything else uses TensorFlow: what was on a TPU is lost when it is initialised.

    Raises:
        InputError: there is no TPU, or it does not answer within `PATIENCE` seconds; names --tpu.
    """
    for host, port in address.hosts:
        _check_reachable(address, host, port)
    try:
        resolver = _within(PATIENCE, lambda: _connect(address))
    except TimeoutError as error:
        raise InputError(
            f"--tpu {address.name}: the TPU did not answer within {PATIENCE:.0f} seconds"
        ) from error
    except Exception as error:
        raise InputError(f"--tpu {address.name}: {_cause(address, error)}") from error
    if not address.is_local:
        # What is not placed elsewhere runs on the TPU's first host: the input pipeline, the loop of
        # steps. TensorFlow would say so for the thread alone that connected.
        tf.device(f"/job:{_JOB}/replica:0/task:0").__enter__()
    return tf.distribute.TPUStrategy(resolver)


def _connect(address: TpuAddress) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
        tpu=address.name, zone=address.zone, project=address.project, job_name=_JOB
    )
    if not address.is_local:
        tf.config.experimental_connect_to_cluster(resolver, make_master_device_default=False)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    if not tf.config.list_logical_devices("TPU"):
        raise tf.errors.NotFoundError(None, None, "it was initialised and has no cores")
    return resolver


def _check_reachable(address: TpuAddress, host: str, port: int) -> None:
    """TensorFlow itself would wait without end for a host that is not there."""
    try:
        socket.create_connection((host, port), timeout=REACHED_WITHIN).close()
    except OSError as error:
        raise InputError(
            f"--tpu {address.name}: no TPU answers at {host}, port {port}"
            f" ({error.strerror or reason(error)})"
        ) from error


def _within(seconds: float, function: Callable[[], Any]) -> Any:
    """What `function` returns or raises, in a thread that is left behind after `seconds`.

    Raises:
        TimeoutError: it did not end.
    """
    outcome: list[tuple[Any, Exception | None]] = []

    def run() -> None:
        try:
            outcome.append((function(), None))
        except Exception as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def _cause(address: TpuAddress, error: Exception) -> str:
    """Why there is no TPU, as a clause that ends an error message."""
    told = reason(error)
    if "ConfigureDistributedTPU" in str(error) and "No OpKernel" in str(error):
        where = "" if address.is_local else " at that address"
        return (
            f"the TensorFlow{where} has no support for TPUs; a TPU VM needs `pip install {WHEEL}`"
            " in the place of tensorflow"
        )
    if "cloud-tpu-client" in str(error):
        return "looking up a name needs Cloud's client: `pip install cloud-tpu-client`"
    if isinstance(error, urllib.error.URLError):
        return (
            "the name can be looked up from a machine in Google Cloud only, or with --gcp_project"
            f" and --tpu_zone ({told})"
        )
    if isinstance(error, tf.errors.NotFoundError):
        return f"there is no TPU ({told})"
    return f"the TPU cannot be used ({told})"

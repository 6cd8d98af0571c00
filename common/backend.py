"""The kind of device that a graph is built for: code that is fast on a CPU is slow elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import tensorflow as tf
import tf_keras

_for_accelerator: ContextVar[str | None] = ContextVar("for_accelerator", default=None)


@contextlib.contextmanager
def for_accelerator(platform: str = "tpu") -> Iterator[None]:
    """Builds graphs within for a "gpu" or "tpu" of another machine, or for "litert"."""
    token = _for_accelerator.set(platform)
    try:
        yield
    finally:
        _for_accelerator.reset(token)


@contextlib.contextmanager
def precision(policy: str) -> Iterator[None]:
    """Builds layers of a Keras policy within; the caller's own one is kept."""
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


def on_tpu(strategy: tf.distribute.Strategy | None = None) -> bool:
    """Returns True if a strategy, by default the current one, is a TPUStrategy.

    A TPU compiles a replica's whole function.
    """
    return isinstance(strategy or tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def built_for_tpu() -> bool:
    """Returns True if graphs built now are for a TPU, by the strategy or `for_accelerator`."""
    return _for_accelerator.get() == "tpu" or on_tpu()


def built_for_litert() -> bool:
    """Returns True if graphs built now are for LiteRT, which lacks some operations."""
    return _for_accelerator.get() == "litert"


def running_on_cpu_only() -> bool:
    """Returns True if there is no GPU or TPU; gates CPU-tuned paths."""
    if _for_accelerator.get() is not None or on_tpu():
        return False  # a remote TPU is not among this machine's devices
    return not any(tf.config.list_physical_devices(kind) for kind in ("GPU", "TPU"))

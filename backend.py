"""Which kind of device a graph is built for: what is fast on a CPU is slow elsewhere."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

_for_accelerator = contextvars.ContextVar("for_accelerator", default=None)


@contextlib.contextmanager
def for_accelerator(kind: str = "TPU") -> Iterator[None]:
    """Graphs built within are those of a "GPU" or "TPU", to be compiled without one."""
    token = _for_accelerator.set(kind)
    try:
        yield
    finally:
        _for_accelerator.reset(token)


def running_on_cpu_only() -> bool:
    """True if there is no GPU or TPU; gates CPU-tuned paths."""
    return not (_runs_on("GPU") or _runs_on("TPU"))


def running_on_gpu() -> bool:
    """True if there is a GPU, where every kernel costs microseconds to start."""
    return _runs_on("GPU")


def _runs_on(kind):
    if _for_accelerator.get():
        return _for_accelerator.get() == kind
    return bool(tf.config.list_physical_devices(kind))

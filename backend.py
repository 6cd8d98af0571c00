"""Which kind of device a graph is built for: what is fast on a CPU is slow elsewhere."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

_for_accelerator = contextvars.ContextVar("for_accelerator", default=False)


@contextlib.contextmanager
def for_accelerator() -> Iterator[None]:
    """Graphs built within are those of a GPU or TPU, to be compiled for one that is not here."""
    token = _for_accelerator.set(True)
    try:
        yield
    finally:
        _for_accelerator.reset(token)


def running_on_cpu_only() -> bool:
    """True if there is no GPU or TPU; gates CPU-tuned paths."""
    if _for_accelerator.get():
        return False
    return not any(tf.config.list_physical_devices(kind) for kind in ("GPU", "TPU"))

"""Settings of a process that must be there before TensorFlow. Every command imports it first.

`import convbert` leaves them to the program. Commands that train or answer call `keep_memory`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

# Otherwise TensorFlow imports Keras 3, scikit-learn and Matplotlib, which takes nearly two seconds
# for nothing.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of glibc's malloc.h


def keep_memory() -> None:
    """Lets glibc's malloc keep what is freed, for the next step.

    By default it returns large tensors to the system, which fills new pages with zeros in each step
    (ConvBERT-small, 32 x 128: 150,000 page faults). All threads share one arena, as large tensors
    do not fit into others. Settings in the environment win.
    """
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if tuned or any(name.startswith("MALLOC_") for name in os.environ):
        return
    with contextlib.suppress(AttributeError, OSError, TypeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1)):
            mallopt(option, value)

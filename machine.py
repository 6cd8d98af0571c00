"""What a process may use of the machine. Needs no TensorFlow."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Cores that this process may use; on systems that do not say so, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""CPU cores and peak memory of the process. Needs no TensorFlow."""

from __future__ import annotations

import os
import resource
import sys


def num_cores() -> int:
    """Cores that this process may use; on systems that do not say so, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory_gib() -> float:
    """The most memory this process has held on the host, in GiB."""
    try:
        with open("/proc/self/status") as status:
            high_water_mark = next(line for line in status if line.startswith("VmHWM"))
        return int(high_water_mark.split()[1]) / 2**20
    except (OSError, StopIteration):  # not Linux, where this includes what the parent process held
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30

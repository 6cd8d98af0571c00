"""CPU cores and peak memory of the process. Needs no TensorFlow."""

from __future__ import annotations

import os
import resource
import sys


def num_cores() -> int:
    """Returns the number of cores that this process may use, or of all cores if unknown."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory_gib() -> float:
    """Returns the peak host memory of this process, in GiB."""
    try:
        with open("/proc/self/status") as status:
            high_water_mark = next(line for line in status if line.startswith("VmHWM"))
        return int(high_water_mark.split()[1]) / 2**20
    except (OSError, StopIteration):  # not Linux; includes the parent process's peak
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30

"""Where the threads of a TensorFlow step spend their time, by kind of operation."""

from __future__ import annotations

import collections
import glob
import os
import re
import tempfile
from collections.abc import Callable

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

_OPERATION = re.compile(r"[^:]:(_?[A-Z]\w*)$")  # "layer_0/mixer/MatMul:_MklMatMul"
COMPILED, EXECUTOR = "compiled by XLA, with waits", "executor"


def operations(run: Callable[[], None], calls: int = 3) -> dict[str, tuple[float, float]]:
    """Traces warmed-up calls on CPUs with TensorFlow's profiler.

    Returns:
        (milliseconds, executions) of one call by kind of operation, longest first. Milliseconds
        are summed over the threads that execute operations, so on two of them they are up to twice
        the step. An operation that waits for a thread counts the wait.
    """
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(calls):
                run()
        (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        with open(path, "rb") as file:
            planes = xplane_pb2.XSpace.FromString(file.read()).planes
    times: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for plane in planes:
        names = {number: entry.name for number, entry in plane.event_metadata.items()}
        for line in plane.lines:
            if line.name.startswith("tf_Compute"):
                _add_own_times(line.events, names, times, counts)
    return {kind: (ps / 1e9 / calls, counts[kind] / calls) for kind, ps in times.most_common()}


def _add_own_times(events, names: dict[int, str], times, counts) -> None:
    """Adds the picoseconds of a thread's events, without those of the events within them."""
    open_events: list[tuple[int, str]] = []  # end, kind
    for event in sorted(events, key=lambda event: (event.offset_ps, -event.duration_ps)):
        while open_events and open_events[-1][0] <= event.offset_ps:
            open_events.pop()
        name = names[event.metadata_id]
        operation = _OPERATION.search(name)
        if operation:
            kind = operation[1]
        else:
            kind = EXECUTOR if name == "ExecutorState::Process" else COMPILED
        if open_events:
            times[open_events[-1][1]] -= event.duration_ps
        times[kind] += event.duration_ps
        counts[kind] += bool(operation) or name == "ExecutorState::ProcessAsync::Start"
        open_events.append((event.offset_ps + event.duration_ps, kind))

"""Where the threads of a TensorFlow step spend their time, by kind of operation."""

from __future__ import annotations

import collections
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from convbert.common.backend import running_on_cpu_only
from convbert.common.errors import InputError

_OPERATION = re.compile(r"[^:]:(_?[A-Z]\w*)$")  # "layer_0/mixer/MatMul:_MklMatMul"
_THREAD = "tf_Compute"  # begins the names of the threads that execute operations
# An asynchronous operation, such as a function that XLA compiled, and what is within it.
ASYNCHRONOUS = "asynchronous operations (XLA), with waits"
OTHER = "cheap operations, the executor"  # TensorFlow records only operations that it finds costly


def operations(run: Callable[[], None], calls: int = 3) -> dict[str, float]:
    """Traces warmed-up calls on CPUs with TensorFlow's profiler.

    Returns milliseconds of one call by kind of operation, longest first. They are summed over the
    threads that execute operations, so on two of them they are up to twice the time of the call. An
    operation that waits for a thread counts the wait. InputError on other devices.
    """
    if not running_on_cpu_only():
        raise InputError("operations are traced on CPUs only")
    times: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(calls):
                run()
        files = [path.read_bytes() for path in pathlib.Path(folder).rglob("*.xplane.pb")]
    for plane in (plane for file in files for plane in xplane_pb2.XSpace.FromString(file).planes):
        name_of = plane.event_metadata
        for line in (line for line in plane.lines if line.name.startswith(_THREAD)):
            events = (
                (e.offset_ps, e.duration_ps, name_of[e.metadata_id].name) for e in line.events
            )
            times.update(own_times(events))
    if not times:
        raise InputError(f"the trace should have threads named {_THREAD}. Received: none")
    return {kind: picoseconds / 1e9 / calls for kind, picoseconds in times.most_common()}


def own_times(events: Iterable[tuple[int, int, str]]) -> dict[str, int]:
    """Returns the time of a thread's events by kind, without that of the events within them.

    `events` are (start, duration, name) of properly nested events, in any order.
    """
    times: collections.Counter[str] = collections.Counter()
    around: list[tuple[int, str]] = []  # end and kind of the events around the current one
    for start, duration, name in sorted(events, key=lambda event: (event[0], -event[1])):
        while around and around[-1][0] <= start:
            around.pop()
        outer = around[-1][1] if around else OTHER
        operation = _OPERATION.search(name)
        if operation:
            kind = operation[1]
        elif name == "ExecutorState::ProcessAsync::Start" or outer == ASYNCHRONOUS:
            kind = ASYNCHRONOUS
        else:
            kind = OTHER
        if around:
            times[outer] -= duration
        times[kind] += duration
        around.append((start + duration, kind))
    return dict(times)

"""Several workers: TensorFlow's cluster, and the operations that commands need.

TF_CONFIG or SLURM names the workers, TensorFlow's coordination service connects them and detects
lost ones, and `MultiWorkerMirroredStrategy` sums over them. In a single process, the default, the
functions below do nothing.

A scheduler starts the workers and restarts all of them if one is lost: training resumes from the
last checkpoint. (`tf.distribute.experimental.PreemptionCheckpointHandler` is not used: between two
loops of steps the workers exchange signals by `gather`, and save as a single process does.)
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from convbert.common import stopping, storage
from convbert.common.errors import CommandError, InputError, reason, warn
from convbert.common.locks import locked

if TYPE_CHECKING:
    import tensorflow as tf

TIMEOUT = 600  # seconds to wait for workers, and for each sum over them
SILENCE = 60  # seconds without a sign of life after which a worker is lost
FIRST_PORT = 12345  # of each node of a SLURM job
MULTI_WORKER = "multi_worker"

strategy: tf.distribute.MultiWorkerMirroredStrategy | None = None  # of the group, once joined
count, index = 1, 0  # number of workers, and of this process among them
_timeout, _exchanges = float(TIMEOUT), 0  # seconds to wait in `gather`; number of its calls
_temporary = ""  # folder for files of workers other than the chief


def parse_strategy(name: str) -> tuple[str, int | None]:
    """Returns a strategy's kind and its number of devices, if given; InputError for others."""
    kind, _, count = name.partition(":")
    known = kind in ("one_device", "mirrored", MULTI_WORKER, "tpu")
    if not known or (count and (kind != "mirrored" or not re.fullmatch("0*[1-9][0-9]*", count))):
        expected = f"one_device, mirrored, mirrored:N, N at least 1, {MULTI_WORKER} or tpu"
        raise InputError(f"--strategy should be {expected}. Received: {name!r}")
    return kind, int(count) if count else None


class WorkerLost(CommandError, RuntimeError):
    """Another worker did not start, or was lost."""

    status = 75  # EX_TEMPFAIL: start all workers again


def is_chief() -> bool:
    """Returns True for the worker that writes and reports: the first one."""
    return index == 0


def gather(arrays: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the arrays of all workers, in order. All must make the same calls of it."""
    if strategy is None:
        return [dict(arrays)]
    from tensorflow.python.eager import context

    global _exchanges
    file, store = io.BytesIO(), context.context()
    np.savez(file, **arrays)
    name = f"convbert/{_exchanges}"
    store.set_config_key_value(f"{name}/{index}", base64.b64encode(file.getvalue()).decode())
    with lost_workers():  # a barrier fails soon if a worker is lost; reading a key does not
        store.wait_at_barrier(name, int(_timeout * 1000))
        texts = [store.get_config_key_value(f"{name}/{worker}") for worker in range(count)]
    found = []
    for text in texts:
        with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as loaded:
            found.append({name: loaded[name] for name in loaded})
    if _exchanges:  # read by all, as all have reached this one
        store.delete_config_key_value(f"convbert/{_exchanges - 1}/{index}")
    _exchanges += 1
    return found


def barrier() -> None:
    """Waits for all workers, so that all can read what the chief wrote before."""
    gather({})


def agree_to_stop(number: int | None) -> int | None:
    """Returns the signal that any worker has received, so that all stop at the same step."""
    return max(int(told["signal"]) for told in gather({"signal": np.int32(number or 0)})) or None


def written(folder: str) -> str:
    """Returns the folder to write to instead of `folder`: itself on the chief.

    Other workers get a temporary folder, which is removed at the end of `at_work`.
    """
    if is_chief():
        return folder
    temporary = os.path.join(_temporary, os.path.abspath(folder).strip(os.sep))
    os.makedirs(temporary, exist_ok=True)
    return temporary


def say(text: str) -> None:
    """Prints a line to standard error, on the chief only."""
    if is_chief():
        print(text, file=sys.stderr)


def join(timeout: float) -> None:
    """Waits for all workers and joins their group.

    Raises:
        InputError: TF_CONFIG and SLURM's variables are missing or invalid.
        WorkerLost: a worker did not start within `timeout` seconds.
    """
    global strategy, count, index, _timeout
    import tensorflow as tf

    if not {"TF_CONFIG", "SLURM_PROCID"} & {*os.environ}:
        needed = "TF_CONFIG, or the variables that SLURM's srun sets"
        raise InputError(f"--strategy multi_worker needs {needed}. Received: neither")
    try:
        if "TF_CONFIG" in os.environ:
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        else:
            resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(port_base=FIRST_PORT)
        jobs = resolver.cluster_spec().as_dict()
        before = len(jobs.get("chief", ())) if resolver.task_type == "worker" else 0
        options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout)
        _register_within(timeout, jobs)
        with lost_workers(), _ending_after(timeout + 15):  # TensorFlow's own error comes first
            joined = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
            stopping.take()  # TensorFlow's server overrides the SIGTERM handler
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        if isinstance(error, CommandError):
            raise
        raise InputError(f"TF_CONFIG or SLURM's variables: {reason(error)}") from error
    strategy, _timeout = joined, timeout
    count, index = sum(map(len, jobs.values())), before + resolver.task_id


@contextlib.contextmanager
def _ending_after(seconds: float) -> Iterator[None]:
    """Ends the process by SIGALRM if the block takes longer.

    TensorFlow's first worker waits for others without a limit, holding the interpreter's lock: no
    Python handler or thread could end it or print anything.
    """
    say(f"waiting for the other workers, at most {seconds:.0f} seconds")
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _register_within(timeout: float, jobs: Mapping[str, list[str]]) -> None:
    """Sets the coordination service's time-out, which the strategy leaves at an hour."""
    from tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2 import CoordinatedJob
    from tensorflow.python.eager import context

    leader = "chief" if "chief" in jobs else "worker"
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=f"/job:{leader}/replica:0/task:0",
        cluster_register_timeout_in_ms=int(timeout * 1000),
        heartbeat_timeout_in_ms=SILENCE * 1000,
        shutdown_barrier_timeout_in_ms=SILENCE * 1000,
        coordinated_jobs=[CoordinatedJob(name=job, num_tasks=len(jobs[job])) for job in jobs],
    )


@contextlib.contextmanager
def lost_workers() -> Iterator[None]:
    """Converts TensorFlow's errors about a missing worker into WorkerLost."""
    import tensorflow as tf

    lost: tuple[type[Exception], ...] = (tf.errors.AbortedError, tf.errors.CancelledError)
    lost += (tf.errors.DeadlineExceededError, tf.errors.InternalError)
    lost += (tf.errors.UnavailableError, tf.errors.UnknownError)
    try:
        yield
    except lost as error:
        lost_one = f"another worker did not start or was lost ({reason(error)})"
        again = "Start all workers again: training resumes from the last checkpoint"
        raise WorkerLost(f"{lost_one}. {again}") from error


@contextlib.contextmanager
def at_work(name: str, folder: str, timeout: float = TIMEOUT) -> Iterator[None]:
    """Joins the group of strategy multi_worker, and locks a folder.

    The chief writes to the folder; from a read-only one, finished runs can be read. `timeout` is
    the number of seconds to wait for the other workers.
    """
    global _temporary
    with contextlib.ExitStack() as stack:
        if parse_strategy(name)[0] == MULTI_WORKER:
            join(timeout)
            stack.enter_context(lost_workers())
        if not is_chief():
            place = tempfile.TemporaryDirectory(prefix=f"worker-{index}-")
            _temporary = stack.enter_context(place)
        elif storage.is_url(folder) or not storage.isdir(folder) or os.access(folder, os.W_OK):
            stack.enter_context(locked(folder))
        else:
            warn(f"{folder} cannot be written; only finished runs can be read")
        yield
        # The chief's process keeps the barrier, and may end before others have its answer.
        with contextlib.nullcontext() if is_chief() else contextlib.suppress(WorkerLost):
            barrier()

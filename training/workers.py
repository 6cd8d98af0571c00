"""What the workers of a group tell each other beside TensorFlow. Needs no TensorFlow.

The workers have connections to the chief, made before TensorFlow is imported (to the address where
its own server listens later) and held to the end. So a group finds out in a sentence and at once
what TensorFlow would find out late, or never: who did not come, whose settings are others, who was
killed. A connection that breaks is a worker that is lost, and ends the group.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

import stopping
from errors import CommandError, InputError, reason
from locks import locked
from training.cluster import Cluster, read_cluster
from training.meeting import LOST, WorkerLost, disagreement, meet, receive, send
from training.strategies import MULTI_WORKER, parse_strategy

TIMEOUT = 600  # seconds for workers to come, and for each exchange and sum among them
SILENCE = 60  # seconds without a sign of life after which a worker is lost
_BEAT = 5  # seconds between signs of life
_TELLING = 1.0  # seconds for the last message to arrive
_NEWS = SILENCE + 2 * _BEAT  # seconds to wait for the cause of an error of TensorFlow's
# TensorFlow's errors that another worker causes, by their names.
_OF_PEERS = ("AbortedError", "CancelledError", "DeadlineExceededError", "UnavailableError")


class Alone:
    """What `current` returns in a process that is not part of a group."""

    count, index, is_chief = 1, 0, True

    def exchange(self, what: str, value: Any = None) -> list[Any]:
        """The values of all workers, in their order. All must call it, in the same order.

        Args:
            what: names the place, for errors.
            value: JSON.
        """
        return [value]

    def gather(self, what: str, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """The arrays of all workers, in their order. All must call it, in the same order."""
        return [dict(arrays)]

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raises InputError, the same on every worker, where one has other facts than the chief."""

    def agree_to_stop(self, signal: int | None) -> int | None:
        """The signal that any of the workers was asked to stop by."""
        return signal

    def written(self, folder: str) -> str:
        """Where this worker writes what belongs into a folder: the chief there, others nowhere.

        Theirs is a temporary folder, which goes at the end. All read what the chief wrote.
        """
        return folder


class Workers(Alone):
    """A group of workers; see `joined`.

    Args:
        cluster: the group.
        connections: to the chief, or to all others from the chief, by their numbers.
        timeout: seconds that an exchange may take.
        end: ends the process with a status and a sentence.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: dict[int, socket.socket],
        timeout: float,
        end: Callable[[int, str], None] = stopping.end,
    ):
        self.cluster, self.timeout = cluster, timeout
        self.count, self.index = len(cluster.addresses), cluster.index
        self.is_chief = self.index == 0
        self._connections, self._end_process = connections, end
        self._heard = dict.fromkeys(connections, time.monotonic())
        self._values: dict[int, dict[int, tuple[str, bytes]]] = {}  # exchange -> worker -> value
        self._number = 0  # of the next exchange
        self._arrived = threading.Condition()
        self._sending = {number: threading.Lock() for number in connections}
        self._ended = False  # nothing is said any more
        self._temporary: str | None = None
        for number in connections:
            threading.Thread(target=self._listen, args=(number,), daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    # ------------------------------------------------------------ what workers do together

    def exchange(self, what, value=None):
        """See Alone.exchange."""
        return [json.loads(text) for text in self._exchange(what, json.dumps(value).encode())]

    def gather(self, what, arrays):
        """See Alone.gather."""
        packed = io.BytesIO()
        np.savez(packed, **arrays)
        found = []
        for data in self._exchange(what, packed.getvalue()):
            with np.load(io.BytesIO(data), allow_pickle=False) as loaded:
                found.append({name: loaded[name] for name in loaded})
        return found

    def agree(self, facts):
        """See Alone.agree."""
        if sentence := disagreement(self.cluster, self.exchange("facts", dict(facts))):
            raise InputError(sentence)

    def agree_to_stop(self, signal):
        """See Alone.agree_to_stop."""
        return max(filter(None, self.exchange("stop", signal)), default=None)

    def written(self, folder):
        """See Alone.written."""
        if self.is_chief:
            return folder
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix=f"worker-{self.index}-")
        path = os.path.join(self._temporary, os.path.abspath(folder).strip(os.sep))
        os.makedirs(path, exist_ok=True)
        return path

    def _exchange(self, what: str, value: bytes) -> list[bytes]:
        number, self._number = self._number, self._number + 1
        last = what == "end"
        if not self.is_chief:
            self._send(0, {"kind": "value", "number": number, "what": what}, value)
            wanted = {0}
        else:
            with self._arrived:
                self._values.setdefault(number, {})[0] = (what, value)
            wanted = set(range(self.count))
        with self._arrived:
            here = self._arrived.wait_for(
                lambda: wanted <= set(self._values.get(number, {})), self.timeout
            )
            found = self._values.pop(number, {})
        if not here:
            late = ", ".join(map(self.cluster.name, sorted(wanted - set(found))))
            raise WorkerLost(f"{late} did not come to {what!r} within {self.timeout:g} s")
        if not self.is_chief:
            return _split(found[0][1])
        values = [found[worker][1] for worker in range(self.count)]
        for worker in range(1, self.count):
            if found[worker][0] != what:
                name = self.cluster.name(worker)
                raise WorkerLost(f"{name} is at {found[worker][0]!r}, worker 0 at {what!r}")
        self._ended |= last
        for worker in self._connections:
            self._send(worker, {"kind": "values", "number": number, "what": what}, _join(values))
        return values

    # ------------------------------------------------------------ news

    def _send(
        self, worker: int, message: dict[str, Any], payload: bytes = b"", patience: float = -1
    ) -> None:
        """Sends a message; that the other is gone is the listening thread's to find.

        Args:
            patience: seconds to wait for the end of another message, which never comes where the
                other hangs; -1 for any.
        """
        if self._sending[worker].acquire(timeout=patience):
            try:
                with contextlib.suppress(OSError):
                    send(self._connections[worker], message, payload)
            finally:
                self._sending[worker].release()

    def _listen(self, worker: int) -> None:
        """Receives what a worker sends, to the end of its connection."""

        def heard() -> None:
            self._heard[worker] = time.monotonic()

        try:
            while True:
                message, payload = receive(self._connections[worker], heard)
                if message["kind"] in ("value", "values"):
                    if message["kind"] == "values" and message["what"] == "end":
                        self._ended = True
                    with self._arrived:
                        place = self._values.setdefault(message["number"], {})
                        place[worker] = (message["what"], payload)
                        self._arrived.notify_all()
                elif message["kind"] == "ended":
                    self._finish(message["status"], message["sentence"])
        except (OSError, ValueError, KeyError):
            name = self.cluster.name(worker)
            self._finish(LOST, f"{name} is lost: its process ended without a word")

    def _beat(self) -> None:
        """Shows that this worker is alive; ends the group where another does not."""
        while not self._ended:
            time.sleep(_BEAT)
            for worker in self._connections:
                self._send(worker, {"kind": "alive"}, patience=0)
                if time.monotonic() - self._heard[worker] > SILENCE:
                    name = self.cluster.name(worker)
                    self._finish(LOST, f"{name} is lost: nothing was heard from it for {SILENCE} s")

    def _finish(self, status: int, sentence: str) -> None:
        """Ends the group for what happened to another worker; does nothing after the end."""
        if self.tell(status, sentence):
            self._end_process(status, f"error: {sentence}")

    def tell(self, status: int, sentence: str) -> bool:
        """Lets the others end with this status and sentence; whether this was the first word."""
        with self._arrived:
            first, self._ended = not self._ended, True
        if first:
            message = {"kind": "ended", "status": status, "sentence": sentence}
            for worker in self._connections:
                self._send(worker, message, patience=_TELLING)
            time.sleep(_TELLING)
        return first

    def fail(self, error: Exception) -> None:
        """Lets the others end for an error of this worker; ends this one, if it is a bug."""
        own = self.cluster.name(self.index)
        if isinstance(error, WorkerLost):  # the sentence names who it is
            self.tell(error.status, str(error))
        elif isinstance(error, (CommandError, OSError)):
            self.tell(1, f"{own}: {error}")
        elif type(error).__name__ in (*_OF_PEERS, "InternalError", "UnknownError"):
            # Often what another worker's end leads to, and its cause comes by the connection: then
            # the thread that listens ends this process meanwhile.
            time.sleep(_NEWS)
            if type(error).__name__ in _OF_PEERS:
                sentence = f"a sum over the workers failed, on {own} ({reason(error)})"
                self._finish(LOST, sentence)
            self._fail_with_traceback(error)
        else:
            self._fail_with_traceback(error)

    def _fail_with_traceback(self, error: Exception) -> None:
        own = self.cluster.name(self.index)
        traceback.print_exc()
        self.tell(1, f"{own} failed: {type(error).__name__}: {reason(error)}"[:1000])
        self._end_process(1, f"error: {own} failed, as said above")

    def clean(self) -> None:
        """Tells the others that this worker ends, if it was a signal; removes what is temporary."""
        if (signal := stopping.asked()) is not None:
            name = self.cluster.name(self.index)
            self.tell(128 + signal, f"{name} was {stopping.Stopped(signal)}")
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


ALONE = Alone()
_current: Alone = ALONE


def current() -> Alone:
    """The group that this process is part of."""
    return _current


def agree_on_weights(variables: Iterable[Any]) -> None:
    """Raises InputError where a worker has restored other weights than the chief.

    Args:
        variables: TensorFlow's, in the same order on all workers.
    """
    if _current.count > 1:
        digest = hashlib.sha256()
        for variable in variables:
            digest.update(variable.numpy().tobytes())
        _current.agree({"weights": digest.hexdigest()})


def say(text: str) -> None:
    """Prints a line to standard error, on the chief alone."""
    if _current.is_chief:
        print(text, file=sys.stderr)


@contextlib.contextmanager
def at_work(
    strategy: str, folder: str, facts: Callable[[], Mapping[str, Any]], timeout: float = TIMEOUT
) -> Iterator[None]:
    """Joins the group of --strategy multi_worker, and keeps other commands out of a folder.

    Args:
        strategy: of another kind is for a process alone.
        folder: what the chief writes into.
        facts, timeout: see `joined`.
    """
    with contextlib.ExitStack() as stack:
        if parse_strategy(strategy)[0] == MULTI_WORKER:
            stack.enter_context(joined(read_cluster(os.environ), facts(), timeout))
        if _current.is_chief:
            stack.enter_context(locked(folder))
        yield


@contextlib.contextmanager
def joined(cluster: Cluster, facts: Mapping[str, Any], timeout: float = TIMEOUT) -> Iterator[None]:
    """Waits for all workers of a group, and makes it the `current` one in the block.

    All of them end with the same status: at the end of the block they wait for each other; where
    one raises an error, all end with its sentence; where one is lost, with status `LOST`.

    Args:
        facts: what must be the same on all workers, JSON by name.
        timeout: seconds to wait for the others.

    Raises:
        InputError: a worker has other facts, or this one cannot listen at its address.
        WorkerLost: one did not come.
    """
    global _current
    group = Workers(cluster, meet(cluster, facts, timeout), timeout)
    stopping.leave_at_once()
    os.environ["TF_CONFIG"] = cluster.tf_config()
    with stopping.cleaning(group.clean):
        _current = group
        try:
            yield
            group.exchange("end")
        except stopping.Stopped:  # which all have agreed to
            group.exchange("end")
            raise
        except Exception as error:
            group.fail(error)
            raise
        finally:
            _current = ALONE


def _join(values: list[bytes]) -> bytes:
    sizes = json.dumps([len(value) for value in values]).encode()
    return b"".join([struct.pack("!I", len(sizes)), sizes, *values])


def _split(data: bytes) -> list[bytes]:
    (length,) = struct.unpack("!I", data[:4])
    values, at = [], 4 + length
    for size in json.loads(data[4:at]):
        values.append(data[at : at + size])
        at += size
    return values

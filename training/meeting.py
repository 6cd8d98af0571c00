"""How the workers of a group find each other, before TensorFlow is imported.

The chief listens at its address, where TensorFlow's server will listen afterwards, and the others
connect to it and say who they are. When all have come, it answers them all.

Messages are two lengths, JSON, and bytes. Nothing that comes is executed, and whoever can reach the
port is trusted, as TensorFlow trusts whoever reaches its server.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from errors import CommandError, InputError
from settings import differences
from training.cluster import Cluster

LOST = 75  # the exit status of a group that lost a worker: start it again
_GRACE = 10  # seconds that the others wait longer than the chief, who knows more
_HELLO = 10  # seconds for a process that has connected to say who it is
_QUIET = 5  # seconds without a word about who is missing
_HEADER = struct.Struct("!IQ")
_LARGEST = 1 << 20  # bytes of a message's JSON; more is another protocol


class WorkerLost(CommandError, RuntimeError):
    """A worker that did not come, or is gone."""

    status = LOST


def meet(cluster: Cluster, facts: Mapping[str, Any], timeout: float) -> dict[int, socket.socket]:
    """Waits for all workers; returns the connections of `training.workers.Workers`.

    Raises:
        InputError: a worker has other facts, or this one cannot listen at its address.
        WorkerLost: one did not come.
    """
    own = json.loads(json.dumps({"addresses": cluster.addresses, **facts}))  # as others' come
    hello = {"kind": "hello", "worker": cluster.index, "facts": own}
    if len(cluster.addresses) == 1:
        return {}
    if cluster.index:
        return {0: _meet_chief(cluster, hello, timeout)}
    return _meet_others(cluster, hello, timeout)


def _meet_chief(cluster: Cluster, hello: dict[str, Any], timeout: float) -> socket.socket:
    host, _, port = cluster.addresses[0].rpartition(":")
    began, said = time.monotonic(), False
    while True:
        left = began + timeout + _GRACE - time.monotonic()
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), max(0.1, left))
            break
        except OSError as error:  # it is not there yet, or has no name yet
            if left <= 0:
                raise WorkerLost(
                    f"{cluster.name(0)} did not come within {timeout:g} s ({error})"
                ) from error
            if time.monotonic() - began > _QUIET and not said:
                said = _say(f"waiting for {cluster.name(0)}, for {timeout:g} s ({error})")
            time.sleep(0.2)
    _tune(connection)
    try:
        connection.settimeout(timeout + _GRACE)
        send(connection, hello)
        message, _ = receive(connection)
    except (OSError, ValueError) as error:
        connection.close()
        raise WorkerLost(
            f"{cluster.name(0)} is lost, or another program listens there ({error})"
        ) from error
    if message["kind"] == "ended":
        connection.close()
        known = WorkerLost if message["status"] == LOST else InputError
        raise known(message["sentence"])
    connection.settimeout(None)
    return connection


def _meet_others(
    cluster: Cluster, hello: dict[str, Any], timeout: float
) -> dict[int, socket.socket]:
    came: dict[int, tuple[socket.socket, dict[str, Any]]] = {}
    with contextlib.closing(_listener(cluster)) as listener:
        _receive_all(cluster, listener, came, timeout)
    connections = {worker: connection for worker, (connection, _) in sorted(came.items())}
    missing = [worker for worker in range(1, len(cluster.addresses)) if worker not in came]
    error: Exception | None = None
    if missing:
        names = ", ".join(map(cluster.name, missing))
        error = WorkerLost(f"{names} did not come within {timeout:g} s")
    else:
        facts = [hello["facts"], *(came[worker][1] for worker in connections)]
        if sentence := disagreement(cluster, facts):
            error = InputError(sentence)
    status = LOST if missing else 1
    for connection in connections.values():
        with contextlib.suppress(OSError):
            connection.settimeout(None)
            answer = {"kind": "ended", "status": status, "sentence": str(error)}
            send(connection, answer if error else {"kind": "begin"})
    if error:
        raise error
    return connections


def _listener(cluster: Cluster) -> socket.socket:
    port = int(cluster.addresses[0].rpartition(":")[2])
    try:
        # It may be bound again while connections to it are held: by TensorFlow, soon.
        return socket.create_server(("", port), reuse_port=False)
    except OSError as error:
        raise InputError(
            f"{cluster.name(0)} cannot listen at its port: {error.strerror or error}"
        ) from error


def _receive_all(
    cluster: Cluster,
    listener: socket.socket,
    came: dict[int, tuple[socket.socket, dict[str, Any]]],
    timeout: float,
) -> None:
    """Fills `came` with the connection and the facts of each worker, until all are there."""
    began, said, count = time.monotonic(), False, len(cluster.addresses)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while len(came) < count - 1 and (left := began + timeout - time.monotonic()) > 0:
        if not selector.select(min(left, 1.0)):
            if time.monotonic() - began > _QUIET and not said:
                missing = [cluster.name(n) for n in range(1, count) if n not in came]
                said = _say(f"waiting for {', '.join(missing)}, for {timeout:g} s")
            continue
        connection, _ = listener.accept()
        _tune(connection)
        try:
            patience = min(_HELLO, left)
            connection.settimeout(patience)
            message, _ = receive(connection, _until(time.monotonic() + patience))
            worker = message["worker"]
            if message["kind"] != "hello" or not 0 < worker < count:
                raise ValueError("another protocol")
        except (OSError, ValueError, KeyError, TypeError):
            connection.close()  # a port scanner, or a worker of another time
            continue
        if worker in came:
            came.pop(worker)[0].close()  # of a process that was started again
        came[worker] = connection, message["facts"]


def _until(deadline: float) -> Callable[[], None]:
    """What ends a message that has begun and is not there by the deadline."""

    def heard() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError("a message that does not end")

    return heard


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _say(text: str) -> bool:
    print(text, file=sys.stderr, flush=True)
    return True


def disagreement(cluster: Cluster, facts: list[dict[str, Any]]) -> str | None:
    """Which worker has other facts than the chief, and which; None where all are the same."""
    for worker in range(1, len(facts)):
        if changed := differences(facts[0], facts[worker], ("on worker 0", f"on worker {worker}")):
            lines = "\n  ".join(changed)
            return f"{cluster.name(worker)} should be as worker 0, but it is not:\n  {lines}"
    return None


def send(connection: socket.socket, message: dict[str, Any], payload: bytes = b"") -> None:
    """Sends a message of JSON and bytes."""
    text = json.dumps(message).encode()
    connection.sendall(_HEADER.pack(len(text), len(payload)) + text)
    if payload:
        connection.sendall(payload)


def receive(
    connection: socket.socket, heard: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], bytes]:
    """Receives a message, and calls `heard` for every part that comes.

    Raises:
        OSError: the connection has ended.
        ValueError: what comes is no message.
    """
    length, size = _HEADER.unpack(_read(connection, _HEADER.size, heard))
    if length > _LARGEST:
        raise ValueError("another protocol")
    message = json.loads(_read(connection, length, heard))
    return message, _read(connection, size, heard)


def _read(connection: socket.socket, size: int, heard: Callable[[], None]) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionResetError("the end of the connection")
        heard()
        data += part
    return bytes(data)

"""One command at a time works in a folder. Every room may import this.

The lock is a small JSON file, so that who waits for whom can be read. A process removes its own at
its end, also when a signal ends it; one that was killed outright leaves it behind, and the next
command on the same machine sees that it is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import socket
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import files
import stopping
from errors import InputError

LOCK_FILE = ".lock"
_PATIENCE = 1.0  # seconds for another process to write what it has created


@contextlib.contextmanager
def locked(folder: str, *, beside: bool = False) -> Iterator[None]:
    """Keeps other commands from working in a folder.

    Args:
        folder: what is worked in; created when missing.
        beside: the lock is `FOLDER.lock`, for a folder that appears at the end.

    Raises:
        InputError: another command is at work there, or the lock cannot be written.
    """
    path = os.path.realpath(folder) + ".lock" if beside else os.path.join(folder, LOCK_FILE)
    process, made = os.getpid(), files.missing_parents(path)

    def release() -> None:
        if os.getpid() != process or _owner(path) != own:  # forked, or another's by now
            return
        with contextlib.suppress(OSError):
            os.remove(path)
        remove_made()

    def remove_made() -> None:
        for parent in made:
            with contextlib.suppress(OSError):  # it is not empty any more
                os.rmdir(parent)

    own = {
        "host": socket.gethostname(),
        "process": process,
        "started": _start_of(process),
        "command": shlex.join([os.path.basename(sys.executable), *sys.argv]),
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    with stopping.cleaning(release):
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            _take(path, own, folder)
        except OSError as error:
            remove_made()
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            yield
        finally:
            release()


def _take(path: str, own: dict[str, Any], folder: str) -> None:
    """Creates the lock, or takes over one that a process left behind."""
    content = (json.dumps(own) + "\n").encode()
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            if _take_over(path, content, folder):
                return
            continue  # it went, or another process took it over
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
        except OSError:  # a full disk
            os.remove(path)
            raise
        return


def _take_over(path: str, content: bytes, folder: str) -> bool:
    """Makes a lock that was left behind ours; False where it changed meanwhile.

    Raises:
        InputError: its process is at work.
    """
    owner = _read_patiently(path)
    if owner is None:
        return False
    if not _is_left_behind(owner):
        _reject(path, owner, folder)
    try:
        with open(path, "r+b") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)  # of two that find it, one takes it
            still_there = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
            if not still_there or (_owner(path) or {}) != owner:
                return False
            file.write(content)
            file.truncate()
            return True
    except FileNotFoundError:
        return False


def _read_patiently(path: str) -> dict[str, Any] | None:
    """What a lock says; None where there is none, nothing in one that is empty a second later.

    Raises:
        InputError: it says nothing, also a second later.
    """
    deadline = time.monotonic() + _PATIENCE
    while os.path.lexists(path):
        owner = _owner(path)
        if owner is not None:
            return owner
        if time.monotonic() > deadline:
            if os.path.lexists(path) and not os.path.getsize(path):
                return {}  # its writer was killed between two instructions
            raise InputError(
                f"{path}: should say whose lock it is, but cannot be read: delete it if no other"
                " command is at work in this folder"
            )
        time.sleep(0.05)
    return None


def _owner(path: str) -> dict[str, Any] | None:
    """What a lock says, None where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            owner = json.load(file)
    except (OSError, ValueError):
        return None
    wanted = {"host": str, "process": int, "command": str, "time": str}
    if not isinstance(owner, dict):
        return None
    return owner if all(isinstance(owner.get(k), t) for k, t in wanted.items()) else None


def _is_left_behind(owner: dict[str, Any]) -> bool:
    """Whether the process is gone; of another machine's, nobody here can tell."""
    if not owner:
        return True
    if owner["host"] != socket.gethostname():
        return False
    if not files.is_running(owner["process"]):
        return True
    started = _start_of(owner["process"])  # process numbers come again
    return started is not None and owner.get("started") != started


def _start_of(process: int) -> int | None:
    """When a process started, in ticks since the machine did; None where that is not said."""
    fields = files.process_fields(process)
    return int(fields[19]) if fields else None


def _reject(path: str, owner: dict[str, Any], folder: str) -> None:
    remedy = "wait for it, or stop it"
    if owner["host"] != socket.gethostname():
        remedy += f"; if that process is gone, delete {path}"
    command = textwrap.shorten(owner["command"], 200, placeholder=" ...")
    raise InputError(
        f"{folder}: another command is at work here: process {owner['process']} on"
        f" {owner['host']}, since {owner['time']} ({command}): {remedy}"
    )

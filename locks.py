"""One command at a time works in a folder. Every folder may import this.

The lock is a small JSON file that says who works there. Its process holds it by flock(2), which
ends with the process however it ends; the next command on the same machine takes over the file that
a killed one left. What another machine left must be deleted by hand, as not all file systems share
flock between machines.

Object stores have no locks. There the file keeps commands apart that do not begin within the same
second: whoever finds it there, or another's in its place after writing it, is rejected.
"""

from __future__ import annotations

import contextlib
import errno
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
import storage
from errors import InputError

LOCK_FILE = ".lock"
_PATIENCE = 1.0  # seconds for another process to write what it has created
_UNKNOWN = {"host": socket.gethostname(), "process": "?", "time": "?", "command": "?"}
_WITHOUT_FLOCK = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # of some network file systems


@contextlib.contextmanager
def locked(folder: str, *, beside: bool = False) -> Iterator[None]:
    """Keeps other commands from working in a folder.

    Args:
        folder: what is worked in; created when missing.
        beside: the lock is `FOLDER.lock`, for a folder that appears at the end.

    Raises:
        InputError: another command is at work there, or the lock cannot be written.
    """
    path = storage.realpath(folder) + ".lock" if beside else os.path.join(folder, LOCK_FILE)
    if storage.is_url(path):
        with _locked_url(path, folder):
            yield
        return
    taken = []

    def release() -> None:
        while taken:
            descriptor = taken.pop()
            if _is_at(descriptor, path):  # nobody deleted it and began another
                with contextlib.suppress(OSError):
                    os.remove(path)
            os.close(descriptor)

    with files.new_parents(path), stopping.cleaning(release):
        try:
            taken.append(_take(path, folder))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        yield


@contextlib.contextmanager
def _locked_url(path: str, folder: str) -> Iterator[None]:
    """`locked` without flock."""
    own, taken = _own(), []

    def release() -> None:
        with contextlib.suppress(OSError):
            if taken and _owner(path) == own:
                storage.remove(path)

    with stopping.cleaning(release):
        owner = _owner(path)
        here = owner is not None and owner["host"] == own["host"]
        if owner is None or _is_gone(owner, own) or (here and not _runs(owner)):
            taken.append(path)
            files.write_text(path, json.dumps(own) + "\n")
            owner = _owner(path)
        if owner != own:
            _reject(path, owner or _UNKNOWN, folder)
        yield


def _take(path: str, folder: str) -> int:
    """Creates the lock, or takes over one that a process left behind; returns its descriptor."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            exclusive = _flock(descriptor, path, folder)
            if not _is_at(descriptor, path):  # its owner was about to remove it
                os.close(descriptor)
                continue
            owner = _owner(path)
            elsewhere = owner and owner["host"] != socket.gethostname()
            alive = owner and (elsewhere or (not exclusive and _runs(owner)))
            if alive and not _is_gone(owner, _own()):
                _reject(path, owner, folder)
            os.ftruncate(descriptor, 0)
            _write(descriptor, path)
            return descriptor
        except BaseException:
            os.close(descriptor)
            raise


def _flock(descriptor: int, path: str, folder: str) -> bool:
    """Whether this process holds the lock now; not where the file system knows no such locks.

    Raises:
        InputError: another process holds the lock.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        deadline = time.monotonic() + _PATIENCE
        while (owner := _owner(path)) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        _reject(path, owner or _UNKNOWN, folder)
    except OSError as error:
        if error.errno not in _WITHOUT_FLOCK:
            raise
        return False
    return True


def _runs(owner: dict[str, Any]) -> bool:
    """Whether the process of a lock of this machine is alive."""
    try:
        os.kill(owner["process"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return owner["process"] != os.getpid()


def _own() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "command": shlex.join([os.path.basename(sys.executable), *sys.argv]),
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "job": os.environ.get("SLURM_JOB_ID"),
        "starts_of_job": int(os.environ.get("SLURM_RESTART_COUNT", "0")),
    }


def _is_gone(owner: dict[str, Any], own: dict[str, Any]) -> bool:
    """Whether the owner ran in an earlier start of this process's SLURM job, which has ended."""
    same = own["job"] is not None and owner.get("job") == own["job"]
    return same and owner.get("starts_of_job", 0) < own["starts_of_job"]


def _write(descriptor: int, path: str) -> None:
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(json.dumps(_own()) + "\n")
    except OSError:  # a full disk
        os.remove(path)
        raise


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _owner(path: str) -> dict[str, Any] | None:
    """What a lock says; None where there is none, or a local one cannot be read.

    Raises:
        OSError: that of a URL cannot be read, so that it might be anybody's.
    """
    try:
        with storage.open(path, encoding="utf-8") as file:
            owner = json.load(file)
    except (OSError, ValueError) as error:
        if storage.is_url(path) and isinstance(error, OSError) and error.errno != errno.ENOENT:
            raise
        return None
    wanted = {"host": str, "process": int, "command": str, "time": str}
    known = isinstance(owner, dict) and all(isinstance(owner.get(k), t) for k, t in wanted.items())
    return owner if known else None


def _reject(path: str, owner: dict[str, Any], folder: str) -> None:
    remedy = "wait for it, or stop it"
    if owner["host"] != socket.gethostname():
        remedy += f"; if that process is gone, delete {path}"
    command = textwrap.shorten(owner["command"], 200, placeholder=" ...")
    raise InputError(
        f"{folder}: another command is at work here: process {owner['process']} on"
        f" {owner['host']}, since {owner['time']} ({command}): {remedy}"
    )

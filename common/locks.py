"""One command at a time works in a folder. Every folder may import this."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import filelock

from convbert.common import files, storage
from convbert.common.errors import InputError


@contextlib.contextmanager
def locked(folder: str, *, beside: bool = False) -> Iterator[None]:
    """Keeps other commands from working in a folder, by flock(2), which ends with the process.

    The folder is created when missing; with `beside` the lock is `FOLDER.lock`, for a folder that
    appears at the end. Object stores have no locks: there, nothing keeps two commands apart.
    InputError where another command is at work, or the lock cannot be written.
    """
    if storage.is_url(folder):
        yield
        return
    path = os.path.realpath(folder) + ".lock" if beside else os.path.join(folder, ".lock")
    lock = filelock.FileLock(path)
    with files.new_parents(path):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise InputError(f"{path}: another command is at work here") from error
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a filelock that was unlinked is tried again
                os.remove(path)
            lock.release()

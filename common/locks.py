"""Locks that allow one command at a time in a folder. All packages may import this."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import filelock

from convbert.common import files, storage
from convbert.common.errors import InputError


@contextlib.contextmanager
def locked(folder: str, *, beside: bool = False) -> Iterator[None]:
    """Locks a folder against other commands, by flock(2), which ends with the process.

    Creates the folder if it is missing; with `beside` the lock is `FOLDER.lock`, for a folder that
    appears at the end. Object stores have no locks, so two commands can use one folder there.
    InputError if another command holds the lock, or the lock cannot be written.
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
            with contextlib.suppress(OSError):  # filelock retries after an unlink
                os.remove(path)
            lock.release()

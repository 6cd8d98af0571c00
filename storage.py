"""Paths with a scheme (gs://, s3://) beside local ones. Every folder may import this.

Functions have the names and the errors of `os`, `os.path` and `shutil`. A local path goes to
these, and TensorFlow is not imported for it. A URL goes to `tf.io.gfile`, and TensorFlow's errors
come out as OSError with `errno`, `strerror` and `filename`. `os.path.join`, `split`, `basename`,
`dirname` and `relpath` (of two URLs) work on URLs as they are; `abspath`, `realpath` and `glob` do
not.

gs:// is part of TensorFlow. The environment variable CONVBERT_FILE_SYSTEMS names what provides
others: modules to import (`tensorflow_io`) or shared libraries (`my_store.so`), comma-separated.

Objects are written by files.py alone, so `open` reads.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fnmatch
import functools
import importlib
import io
import os
import re
import shutil
import stat as statuses
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from errors import InputError, reason

FILE_SYSTEMS = "CONVBERT_FILE_SYSTEMS"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUFFER = 1 << 20  # bytes; a request of an object store costs tens of milliseconds


class Stat(NamedTuple):
    """What `stat` of a URL tells, by the names of `os.stat_result`."""

    st_size: int
    st_mtime_ns: int
    st_mode: int = statuses.S_IFREG


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path begins with a scheme, such as gs://."""
    return _URL.match(os.fspath(path)) is not None


@functools.cache
def _gfile() -> Any:
    """`tf.io.gfile`, with the file systems of CONVBERT_FILE_SYSTEMS registered."""
    import tensorflow as tf

    for name in filter(None, os.environ.get(FILE_SYSTEMS, "").split(",")):
        try:
            if name.endswith(".so"):
                tf.experimental.register_filesystem_plugin(name)
            else:
                importlib.import_module(name)
        except Exception as error:  # whatever a module raises
            raise InputError(f"{FILE_SYSTEMS}: {name} cannot be loaded: {reason(error)}") from error
    return tf.io.gfile


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[Any]:
    """Yields `tf.io.gfile`; its errors in the block come out as OSError that names `path`."""
    gfile = _gfile()
    from tensorflow import errors as of

    numbers = {
        of.NotFoundError: errno.ENOENT,
        of.AlreadyExistsError: errno.EEXIST,
        of.PermissionDeniedError: errno.EACCES,
        of.UnauthenticatedError: errno.EACCES,
        of.ResourceExhaustedError: errno.ENOSPC,
        of.UnimplementedError: errno.ENOTSUP,
    }
    try:
        yield gfile
    except of.OpError as error:
        scheme = _URL.match(path)
        known = {getattr(s, "decode", lambda s=s: s)() for s in gfile.get_registered_schemes()}
        why = reason(error)
        if scheme and scheme[1] not in known:
            why = (
                f"no file system for {scheme[0]} is registered; {FILE_SYSTEMS} should name a module"
                " or library that provides it"
            )
        raise OSError(numbers.get(type(error), errno.EIO), why, path) from error


# ---------------------------------------------------------------- questions


def stat(path: str) -> Any:
    """`os.stat`; of a URL the size and the time of modification alone."""
    if not is_url(path):
        return os.stat(path)
    with _errors_of(path) as gfile:
        found = gfile.stat(path)
    return Stat(found.length, found.mtime_nsec)


def exists(path: str) -> bool:
    """`os.path.exists`; an OSError where a URL may not be asked for, or cannot be reached."""
    if not is_url(path):
        return os.path.exists(path)
    with _errors_of(path) as gfile:
        return gfile.exists(path)


def lexists(path: str) -> bool:
    """`os.path.lexists`; there are no links behind URLs."""
    return exists(path) if is_url(path) else os.path.lexists(path)


def isdir(path: str) -> bool:
    """`os.path.isdir`; errors as `exists`."""
    if not is_url(path):
        return os.path.isdir(path)
    return _is_directory(path) is True


def isfile(path: str) -> bool:
    """`os.path.isfile`; errors as `exists`."""
    if not is_url(path):
        return os.path.isfile(path)
    return _is_directory(path) is False


def _is_directory(url: str) -> bool | None:
    """None where nothing is there. (`tf.io.gfile.isdir` says no where it may not ask.)"""
    try:
        with _errors_of(url) as gfile:
            return gfile.stat(url).is_directory
    except FileNotFoundError:
        return None


def getsize(path: str) -> int:
    """`os.path.getsize`, in bytes."""
    return stat(path).st_size


def getmtime(path: str) -> float:
    """`os.path.getmtime`, in seconds."""
    return stat(path).st_mtime_ns / 1e9 if is_url(path) else os.path.getmtime(path)


def listdir(path: str) -> list[str]:
    """`os.listdir`."""
    if not is_url(path):
        return os.listdir(path)
    with _errors_of(path) as gfile:  # gs:// ends the names of folders with a slash
        return [name.rstrip("/") for name in gfile.listdir(path) if name.rstrip("/")]


def walk(path: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk`, from the top; what is removed from the subfolders is not walked.

    Raises:
        OSError: a folder cannot be read. `os.walk` would leave it out.
    """
    if not is_url(path):
        yield from os.walk(path, onerror=_raise)
        return
    try:
        names = sorted(listdir(path))
    except FileNotFoundError:
        return
    folders = [name for name in names if isdir(os.path.join(path, name))]
    yield path, folders, [name for name in names if name not in set(folders)]
    for name in folders:
        yield from walk(os.path.join(path, name))


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def matching(folder: str, pattern: str) -> list[str]:
    """Paths in a folder whose names match a pattern, as `glob` matches them; sorted.

    Nothing where there is no such folder, or a local one may not be read.
    """
    try:
        names = listdir(folder or ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        if is_url(folder):
            raise
        return []
    hidden = pattern.startswith(".")
    found = [name for name in fnmatch.filter(names, pattern) if hidden or name[0] != "."]
    return sorted(os.path.join(folder, name) for name in found)


def abspath(path: str) -> str:
    """`os.path.abspath`; a URL without needless slashes."""
    return _tidy(path) if is_url(path) else os.path.abspath(path)


def realpath(path: str) -> str:
    """`os.path.realpath`; a URL without needless slashes."""
    return _tidy(path) if is_url(path) else os.path.realpath(path)


def isabs(path: str) -> bool:
    """`os.path.isabs`; URLs are absolute."""
    return is_url(path) or os.path.isabs(path)


def _tidy(url: str) -> str:
    scheme = _URL.match(url)[0]
    return scheme + re.sub("/+", "/", url[len(scheme) :]).rstrip("/")


# ---------------------------------------------------------------- reading


def open(path: str, mode: str = "r", **options: Any) -> IO:
    """`open` for reading; of a URL "r" and "rb" alone."""
    if not is_url(path):
        return builtins.open(path, mode, **options)
    if mode not in ("r", "rb"):
        raise ValueError(f"`mode` should be 'r' or 'rb', as files.py writes. Received: {mode!r}")
    raw = _Object(path)
    with _errors_of(path):
        raw.file.read(0)  # which opens it: a file that is missing is told here
    binary = io.BufferedReader(raw, _BUFFER)
    return binary if mode == "rb" else io.TextIOWrapper(binary, **options)


class _Object(io.RawIOBase):
    """The bytes behind a URL, which can be sought in."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.file = _gfile().GFile(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _errors_of(self._path):
            content = self.file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _errors_of(self._path):
            self.file.seek(offset, whence)
            return self.file.tell()

    def tell(self) -> int:
        return self.file.tell()

    def close(self) -> None:
        if not self.closed:
            self.file.close()
        super().close()


def download(path: str, folder: str) -> str:
    """The local path of a file: its own, or of a copy in `folder` for libraries without URLs."""
    if not is_url(path):
        return path
    local = os.path.join(folder, os.path.basename(path))
    with _errors_of(path) as gfile:
        gfile.copy(path, local, overwrite=True)
    return local


# ---------------------------------------------------------------- changes


def makedirs(path: str) -> None:
    """`os.makedirs` of a folder that may be there already."""
    if not is_url(path):
        os.makedirs(path, exist_ok=True)
        return
    with _errors_of(path) as gfile:
        gfile.makedirs(path)


def remove(path: str) -> None:
    """`os.remove`."""
    if not is_url(path):
        os.remove(path)
        return
    with _errors_of(path) as gfile:
        gfile.remove(path)


def rmtree(path: str, ignore_errors: bool = False) -> None:
    """`shutil.rmtree`."""
    if not is_url(path):
        shutil.rmtree(path, ignore_errors=ignore_errors)
        return
    with contextlib.suppress(*[OSError] * ignore_errors), _errors_of(path) as gfile:
        gfile.rmtree(path)


def move_file(source: str, target: str) -> None:
    """`os.replace` of a file; on object stores a copy that takes the target's name at its end."""
    if not is_url(target):
        os.replace(source, target)
        return
    with _errors_of(target) as gfile:
        gfile.rename(source, target, overwrite=True)


def upload(local: str, path: str, temporary: str | None = None) -> None:
    """Copies a local file to a URL.

    Args:
        temporary: a URL for the meantime, used where a file is seen before it is complete.
    """
    with _errors_of(path) as gfile:
        from tensorflow.python.lib.io import file_io

        # TensorFlow's own rule: gs:// has no atomic renaming, but its objects appear when complete.
        if temporary is None or not file_io.has_atomic_move(path):
            gfile.copy(local, path, overwrite=True)
            return
        try:
            gfile.copy(local, temporary, overwrite=True)
            gfile.rename(temporary, path, overwrite=True)
        except BaseException:
            with contextlib.suppress(Exception):
                gfile.remove(temporary)
            raise

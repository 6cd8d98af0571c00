"""File functions for URLs (gs://) and local paths. All packages may import this.

Functions have the names and errors of `os` and `shutil`. They use these for local paths, and
`tf.io.gfile` for URLs of the schemes that TensorFlow supports. (`etils.epath` passes on most of
TensorFlow's errors, and opens no files that `io` can buffer.) `os.path.join`, `basename`, `dirname`
and `relpath` (of two URLs) work on URLs directly.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fnmatch
import io
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal

from convbert.common.errors import reason

_BUFFER = 1 << 20  # bytes; a request of an object store costs tens of milliseconds


def is_url(path: str | os.PathLike[str]) -> bool:
    """Returns True if a path begins with a scheme, such as gs://."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", os.fspath(path)) is not None


@contextlib.contextmanager
def _gfile(path: str) -> Iterator[Any]:
    """Yields `tf.io.gfile`; converts its errors in the block to an OSError that names `path`."""
    import tensorflow as tf

    try:
        yield tf.io.gfile
    except tf.errors.OpError as error:
        number = errno.ENOENT if isinstance(error, tf.errors.NotFoundError) else errno.EIO
        raise OSError(number, reason(error), path) from error


def _either(local: Callable[[str], Any], remote: Callable[[Any, str], Any]) -> Callable[[str], Any]:
    """Returns a function of a path: `local(path)`, or `remote(tf.io.gfile, path)` for a URL."""

    def function(path: str) -> Any:
        if not is_url(path):
            return local(path)
        with _gfile(path) as gfile:
            return remote(gfile, path)

    return function


exists = _either(os.path.exists, lambda gfile, path: gfile.exists(path))
# `tf.io.gfile.isdir` alone would hide that a URL is unreachable.
isdir = _either(os.path.isdir, lambda gfile, path: gfile.exists(path) and gfile.isdir(path))
isfile = _either(os.path.isfile, lambda gfile, path: gfile.exists(path) and not gfile.isdir(path))
getsize = _either(os.path.getsize, lambda gfile, path: gfile.stat(path).length)
remove = _either(os.remove, lambda gfile, path: gfile.remove(path))
makedirs = _either(lambda path: os.makedirs(path, exist_ok=True), lambda g, path: g.makedirs(path))
_listdir = _either(os.listdir, lambda gfile, path: gfile.listdir(path))
_rmtree = _either(shutil.rmtree, lambda gfile, path: gfile.rmtree(path))


def listdir(path: str) -> list[str]:
    """`os.listdir`."""
    # gs:// ends folder names with a slash.
    return [name.rstrip("/") for name in _listdir(path) if name != "/"]


def walk(path: str, above: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walks as `os.walk` from the top, in sorted order, following links.

    Raises OSError if a folder cannot be read, or a link leads to a folder `above` it.
    """
    if not is_url(path):
        above = (*above, os.path.realpath(path))
        if above[-1] in above[:-1]:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    try:
        names = sorted(listdir(path))
    except FileNotFoundError:
        return
    folders = [name for name in names if isdir(os.path.join(path, name))]
    yield path, folders, sorted({*names} - {*folders})
    for name in folders:  # without those the caller removed
        yield from walk(os.path.join(path, name), above)


def matching(folder: str, pattern: str) -> list[str]:
    """Returns sorted paths in a folder that match a `glob` pattern; none if it is missing."""
    try:
        names = listdir(folder or ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [n for n in fnmatch.filter(names, pattern) if pattern[0] == "." or n[0] != "."]
    return sorted(os.path.join(folder, name) for name in found)


def abspath(path: str) -> str:
    """Returns `os.path.abspath`, or a URL without trailing slashes."""
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def open(path: str, mode: Literal["rb"] = "rb") -> io.BufferedReader:
    """Opens a file for reading bytes; files.py writes."""
    if not is_url(path):
        return builtins.open(path, mode)
    raw = _Object(path)
    raw.seek(0)  # opens it, so a missing file raises here
    return io.BufferedReader(raw, _BUFFER)


class _Object(io.RawIOBase):
    """A seekable stream of the bytes at a URL."""

    def __init__(self, path: str) -> None:
        with _gfile(path) as gfile:
            self._path, self._file = path, gfile.GFile(path, "rb")

    readable = seekable = lambda self: True

    def readinto(self, buffer: Any) -> int:
        with _gfile(self._path):
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _gfile(self._path):
            self._file.seek(offset, whence)
            return self._file.tell()


def download(path: str, folder: str) -> str:
    """Returns a file's local path, or that of a copy in `folder`, for libraries without URLs."""
    if not is_url(path):
        return path
    local = os.path.join(folder, os.path.basename(path))
    with _gfile(path) as gfile:
        gfile.copy(path, local, overwrite=True)
    return local


def rmtree(path: str, ignore_errors: bool = False) -> None:
    """`shutil.rmtree`."""
    with contextlib.suppress(OSError) if ignore_errors else contextlib.nullcontext():
        _rmtree(path)


def move_file(source: str, target: str) -> None:
    """Renames a file at a URL; on object stores by a copy that appears when complete."""
    with _gfile(target) as gfile:
        gfile.rename(source, target, overwrite=True)


def upload(local: str, path: str) -> None:
    """Copies a local file to a URL, where it appears when complete."""
    temporary = f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        with _gfile(path) as gfile:
            gfile.copy(local, temporary, overwrite=True)
        move_file(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(temporary)
        raise

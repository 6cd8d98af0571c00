"""Atomic writes of files and folders, and JSON. Every folder may import this.

What goes to a URL is written to a local temporary folder (TMPDIR) first. Object stores have no
atomic renaming of folders, so the file by which readers know a finished one is uploaded last.
Functions raise InputError, which names the path, where the system does not let them.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from convbert.common import storage
from convbert.common.errors import InputError

LARGEST = 256 << 20  # bytes of a vocabulary or of JSON; the largest known have some 30 MB


@contextlib.contextmanager
def _naming(path: str, done: str) -> Iterator[None]:
    """Raises InputError, which names `path`, for an OSError in the block."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be {done}: {error.strerror}") from error


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yields a temporary name for a file; at the end, what is there becomes `path`, atomically.

    If the block raises, or a signal that can be caught ends the process, nothing is left behind
    and what was at `path` before stays.
    """
    folder, name = os.path.split(path)
    remote = storage.is_url(path)
    where = None if remote else folder or "."
    # In a folder of its own, where the umask decides who may read it.
    options: dict[str, Any] = {"prefix": f"{name}.tmp-", "dir": where}
    options["ignore_cleanup_errors"] = True
    with _naming(path, "written"), tempfile.TemporaryDirectory(**options) as place:
        temporary = os.path.join(place, name)
        yield temporary
        (storage.upload if remote else os.replace)(temporary, path)


def check_there(flag: str, path: str | None) -> None:
    """Raises InputError where a flag names a file or folder that is not there."""
    if path and not storage.exists(path):
        raise InputError(f"{flag} {path}: there is no such file or folder")


def check_new_folder(path: str) -> None:
    """Raises InputError where a folder that is to be made is there already, and not empty."""
    if storage.exists(path) and (not storage.isdir(path) or storage.listdir(path)):
        raise InputError(f"{path}: should not exist yet, or be an empty folder")


@contextlib.contextmanager
def new_folder(path: str, marker: str = "config.json") -> Iterator[str]:
    """Yields a temporary folder, which becomes `path` at the end; see `replacing`.

    Whatever the block raises, nothing is left behind. After a signal that cannot be caught, a URL
    may hold files, but not `marker`, without which no reader takes the folder for a finished one.
    """
    check_new_folder(path)
    if storage.is_url(path):
        with _uploading(path, marker) as temporary:
            yield temporary
        return
    path = os.path.realpath(path)  # of a link to an empty folder, what it leads to
    with new_parents(path), replacing(path) as temporary:
        os.mkdir(temporary)
        yield temporary


@contextlib.contextmanager
def _uploading(url: str, marker: str) -> Iterator[str]:
    """Yields a local temporary folder, whose files are at `url` in the end, the marker last."""
    with _naming(url, "written"), tempfile.TemporaryDirectory() as temporary:
        local = os.path.join(temporary, "new")
        os.mkdir(local)
        yield local
        found = [os.path.join(place, n) for place, _, names in os.walk(local) for n in names]
        names = sorted(os.path.relpath(name, local) for name in found)
        try:
            for name in sorted(names, key=lambda name: name == marker):
                storage.makedirs(os.path.dirname(os.path.join(url, name)))
                storage.upload(os.path.join(local, name), os.path.join(url, name))
        except BaseException:
            storage.rmtree(url, ignore_errors=True)
            raise


def move_folder(source: str, target: str) -> None:
    """Renames a folder; does nothing where it was renamed before.

    Of URLs each file is, so after an interruption the rest is.
    """
    if not storage.is_url(target):
        if not os.path.exists(target):
            os.replace(source, target)
        return
    for folder, _, names in storage.walk(source):
        for name in names:
            path = os.path.join(folder, name)
            moved = target + path[len(source) :]
            storage.makedirs(os.path.dirname(moved))
            storage.move_file(path, moved)
    storage.makedirs(target)
    storage.rmtree(source, ignore_errors=True)


@contextlib.contextmanager
def new_parents(path: str) -> Iterator[None]:
    """Makes the local folders above `path`; those that are empty at the end go again."""
    made = []
    parent = os.path.dirname(path)
    while parent and not os.path.lexists(parent):
        made.append(parent)
        parent = os.path.dirname(parent)
    try:
        with _naming(path, "written"):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        yield
    finally:
        for folder in made:
            with contextlib.suppress(OSError):  # it is not empty, or was not made
                os.rmdir(folder)


def as_path(name: str, value: Any) -> str:
    """A path that a program gives as the argument `name`, `~` a home; InputError if it is none."""
    try:
        return os.path.expanduser(os.fspath(value))
    except TypeError as error:
        raise InputError(f"`{name}` should be a path. Received: {value!r:.60}") from error


def is_unicode(value: Any) -> bool:
    """False of a text with half a surrogate pair, which UTF-8 cannot hold."""
    try:
        return not isinstance(value, str) or value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def check_regular(path: str, limit: int | None = None) -> None:
    """Raises InputError unless `path` is a regular file, or a link to one, of at most that size.

    Readers would wait for what comes out of a pipe, and never end with some devices.
    """
    with _naming(path, "read"):
        size, regular = storage.getsize(path), storage.isfile(path)
    if not regular:
        raise InputError(f"{path}: should be a regular file. Received: a folder, pipe or device")
    if limit is not None and size > limit:
        raise InputError(f"{path}: should have at most {limit:,} bytes. Received: {size:,}")


def read_bytes(path: str, limit: int = LARGEST) -> bytes:
    """The content of a regular file of at most `limit` bytes."""
    check_regular(path, limit)
    with _naming(path, "read"), storage.open(path, "rb") as file:
        return file.read()


def write_bytes(path: str, content: bytes) -> None:
    """Writes a binary file."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def write_text(path: str, text: str) -> None:
    """Writes UTF-8 text with line feeds as they are."""
    write_bytes(path, text.encode())


def append_text(path: str, text: str) -> None:
    """Appends UTF-8 text to a file; the whole is written again where there is no appending."""
    with _naming(path, "written"):
        if not storage.is_url(path):
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)
            return
        before = storage.open(path).read() if storage.exists(path) else b""
        write_bytes(path, before + text.encode())


def write_json(path: str, value: Any) -> None:
    """Writes indented JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: str) -> dict[str, Any]:
    """The JSON object in a file; an InputError names the line."""
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: should be UTF-8: {error}") from error
    return parse_json(text, path)


def parse_json(text: str, where: object) -> dict[str, Any]:
    """The JSON object that `text` is; an InputError begins with `where`."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text else ""
        raise InputError(f"{where}{line}: not JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets
        raise InputError(f"{where}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: should be a JSON object. Received: {type(value).__name__}")
    return value

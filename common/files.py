"""Atomic writes of files and folders, and JSON. All packages may import this.

Output to a URL is first written to a local temporary folder (TMPDIR). Object stores cannot rename
folders atomically, so the file that marks a finished folder is uploaded last. Functions raise
InputError with the path if the system denies access.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from convbert.common import storage
from convbert.common.errors import InputError, reason

LARGEST = 64 << 20  # bytes of a vocabulary or JSON file; the largest known ones have some 30 MB


@contextlib.contextmanager
def _naming(path: str, done: str) -> Iterator[None]:
    """Converts an OSError in the block to an InputError that names `path`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be {done}: {error.strerror or reason(error)}") from error


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yields a temporary file name, which is renamed to `path` atomically at the end.

    If the block raises, or a signal that can be caught ends the process, no temporary file is left
    behind and the earlier file at `path` stays.
    """
    folder, name = os.path.split(path)
    remote = storage.is_url(path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with _naming(path, "written"):
            yield path  # a device or a named pipe is not replaced
        return
    where = None if remote else folder or "."
    # In its own folder, where the umask decides who may read it.
    options: dict[str, Any] = {"prefix": f"{name}.tmp-", "dir": where}
    options["ignore_cleanup_errors"] = True
    with _naming(path, "written"), tempfile.TemporaryDirectory(**options) as place:
        temporary = os.path.join(place, name)
        yield temporary
        (storage.upload if remote else os.replace)(temporary, path)


def check_there(flag: str, path: str | None) -> None:
    """Raises InputError if a flag names a file or folder that does not exist."""
    if path and not storage.exists(path):
        raise InputError(f"{flag} {path}: there is no such file or folder")


def check_new_folder(path: str) -> None:
    """Raises InputError if a folder to be created exists and is not empty."""
    if storage.exists(path) and (not storage.isdir(path) or storage.listdir(path)):
        raise InputError(f"{path}: should not exist yet, or be an empty folder")


@contextlib.contextmanager
def new_folder(path: str, marker: str = "config.json") -> Iterator[str]:
    """Yields a temporary folder, which is renamed to `path` at the end; see `replacing`.

    If the block raises, nothing is left behind. After a signal that cannot be caught, a URL may
    hold files, but not `marker`, without which readers treat the folder as unfinished.
    """
    check_new_folder(path)
    if storage.is_url(path):
        with _uploading(path, marker) as temporary:
            yield temporary
        return
    path = os.path.realpath(path)  # follows a link to an empty folder
    with new_parents(path), replacing(path) as temporary:
        os.mkdir(temporary)
        yield temporary


@contextlib.contextmanager
def _uploading(url: str, marker: str) -> Iterator[str]:
    """Yields a local temporary folder and uploads its files to `url`, the marker last."""
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
    """Renames a folder; does nothing if it was already renamed.

    Under a URL, moves file by file, and resumes after an interruption.
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
    """Creates the local folders above `path`; removes those that are empty at the end."""
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
            with contextlib.suppress(OSError):  # it is not empty, or does not exist
                os.rmdir(folder)


def as_path(name: str, value: Any) -> str:
    """Converts the argument `name` to a path, expanding `~`; InputError if it is not a path."""
    try:
        return os.path.expanduser(os.fspath(value))
    except TypeError as error:
        raise InputError(f"`{name}` should be a path. Received: {value!r:.60}") from error


def is_unicode(value: Any) -> bool:
    """Returns False for a text with an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        return not isinstance(value, str) or value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def check_regular(path: str, limit: int | None = None) -> None:
    """Raises InputError unless `path` is, or links to, a regular file of at most `limit` bytes.

    Reading a pipe would wait for its writer, and reading some devices would never end.
    """
    with _naming(path, "read"):
        size, regular = storage.getsize(path), storage.isfile(path)
    if not regular:
        raise InputError(f"{path}: should be a regular file. Received: a folder, pipe or device")
    if limit is not None and size > limit:
        raise InputError(f"{path}: should have at most {limit:,} bytes. Received: {size:,}")


def read_bytes(path: str, limit: int = LARGEST) -> bytes:
    """Reads a regular file of at most `limit` bytes."""
    check_regular(path, limit)
    with _naming(path, "read"), storage.open(path, "rb") as file:
        return file.read()


def write_bytes(path: str, content: bytes) -> None:
    """Writes a binary file."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def write_text(path: str, text: str) -> None:
    """Writes UTF-8 text without converting line feeds."""
    write_bytes(path, text.encode())


def append_text(path: str, text: str) -> None:
    """Appends UTF-8 text to a file; rewrites it where appending is not supported."""
    with _naming(path, "written"):
        if not storage.is_url(path):
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)
            return
        before = b""
        if storage.exists(path):
            with storage.open(path) as file:
                before = file.read()
        write_bytes(path, before + text.encode())


def write_json(path: str, value: Any) -> None:
    """Writes indented JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: str) -> dict[str, Any]:
    """Reads the JSON object in a file; an InputError names the line."""
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: should be UTF-8: {error}") from error
    return parse_json(text, path)


def parse_json(text: str, where: object) -> dict[str, Any]:
    """Parses a JSON object; an InputError begins with `where`."""
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

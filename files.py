"""Atomic writes of files and folders, and JSON. Every folder may import this."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import stopping
from errors import InputError


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yields a temporary name for a file; at the end, what is there becomes `path`, atomically.

    Example:
        with replacing("curves.png") as temporary:
            figure.savefig(temporary, format="png")

    Raises:
        InputError: an OSError in the block, or of the renaming. Nothing is left behind then, and
            what was at `path` before stays. Nor is there when a signal ends the process, unless it
            is one that cannot be caught.
    """
    folder, name = os.path.split(path)
    made = []

    def clean() -> None:
        for temporary_folder in made:
            shutil.rmtree(temporary_folder, ignore_errors=True)

    try:
        with stopping.cleaning(clean):
            # In a folder of its own, where the umask decides who may read it.
            made.append(tempfile.mkdtemp(prefix=f"{name}.tmp-", dir=folder or "."))
            temporary = os.path.join(made[0], name)
            yield temporary
            os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def check_new_folder(path: str) -> None:
    """Raises InputError where a folder that is to be made is there already, and not empty."""
    if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise InputError(f"{path}: should not exist yet, or be an empty folder")


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder, which becomes `path` at the end; see `replacing`.

    Whatever the block raises, nothing is left behind, nor of the folders above it.

    Raises:
        InputError: there is something at `path` already; or an OSError in the block.
    """
    check_new_folder(path)
    path = os.path.realpath(path)  # of a link to an empty folder, what it leads to
    with new_parents(path), replacing(path) as temporary:
        os.mkdir(temporary)
        yield temporary


@contextlib.contextmanager
def new_parents(path: str) -> Iterator[None]:
    """Makes the folders above `path`; those that are empty at the end go again.

    Raises:
        InputError: they cannot be made.
    """
    made = []
    parent = os.path.dirname(path)
    while parent and not os.path.lexists(parent):
        made.append(parent)
        parent = os.path.dirname(parent)

    def clean() -> None:
        for folder in made:
            with contextlib.suppress(OSError):  # it is not empty, or was not made
                os.rmdir(folder)

    with stopping.cleaning(clean):
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        yield


def write_text(path: str, text: str) -> None:
    """Writes UTF-8 text with line feeds as they are; raises InputError when that cannot be done."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def write_json(path: str, value: Any) -> None:
    """Writes indented JSON; raises InputError when that cannot be done."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        InputError: the file cannot be read or holds something else; names the line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: should be UTF-8: {error}") from error
    return parse_json(text, path)


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The JSON object that `text` is; an InputError begins with `where`."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}, line {error.lineno}: not JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: should be a JSON object. Received: {type(value).__name__}")
    return value

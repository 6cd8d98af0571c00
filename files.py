"""Files and folders that appear whole or not at all, and JSON. Every room may import this."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

from errors import InputError


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yields a temporary name in the folder of `path`; at the end, that file becomes `path`.

    Example:
        with replacing("curves.png") as temporary:
            figure.savefig(temporary, format="png")

    Raises:
        InputError: an OSError in the block, or of the renaming. Nothing is left behind then, and
            what was at `path` before stays.
    """
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def check_new_folder(path: str) -> None:
    """Raises InputError where a folder that is to be made is there already, and not empty."""
    if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise InputError(f"{path}: should not exist yet, or be an empty folder")


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder beside `path`, which it becomes at the end.

    Whatever the block raises, nothing is left behind.

    Raises:
        InputError: there is something at `path` already; or an OSError in the block.
    """
    check_new_folder(path)
    path = os.path.abspath(path)
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        os.makedirs(temporary)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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

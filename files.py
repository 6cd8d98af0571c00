"""Files and folders that appear whole or not at all, and JSON. Every room may import this."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from typing import Any

import stopping
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
    with _temporary(path) as temporary:
        yield temporary
        os.replace(temporary, path)


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
    path = os.path.realpath(path)  # of a link to an empty folder, what it leads to
    with _temporary(path) as temporary:
        os.makedirs(temporary)
        yield temporary
        os.replace(temporary, path)


@contextlib.contextmanager
def _temporary(path: str) -> Iterator[str]:
    """Yields `PATH.tmp-HOST-PROCESS`, of which nothing is left at the end.

    Nor is there when the process is ended by a signal, unless by one that cannot be caught; what
    that left is removed when `path` is next written from the same machine.

    Raises:
        InputError: an OSError in the block.
    """
    process = os.getpid()
    temporary = f"{path}.tmp-{socket.gethostname()}-{process}"
    made = missing_parents(path)

    def clean() -> None:
        if os.getpid() != process:  # a forked one, which leaves it to its parent
            return
        _remove(temporary)
        for parent in made:
            with contextlib.suppress(OSError):  # it is not empty, or was not made
                os.rmdir(parent)

    with stopping.cleaning(clean):
        try:
            _remove_leftovers(path)
            yield temporary
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        finally:
            clean()


def _remove_leftovers(path: str) -> None:
    """Removes the temporary files and folders for `path` of processes that are no more."""
    folder, name = os.path.split(path)
    beginning = f"{name}.tmp-{socket.gethostname()}-"
    try:
        found = [entry for entry in os.listdir(folder or ".") if entry.startswith(beginning)]
    except OSError:  # writing will say what is wrong
        return
    for entry in found:
        process = entry.removeprefix(beginning)
        # One that has our number was another before: in containers, numbers come again.
        if process.isdecimal() and (int(process) == os.getpid() or not is_running(int(process))):
            _remove(os.path.join(folder, entry))


def is_running(process: int) -> bool:
    """Whether there is a process of this number on this machine, other than one that has ended."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        pass
    fields = process_fields(process)
    return not fields or fields[0] not in "ZX"  # ended; nobody has asked for its status yet


def process_fields(process: int) -> list[str]:
    """What Linux says of a process, from the field `state` on (proc(5), stat); else nothing."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()  # before it the name, of any characters
    except OSError:
        return []


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.remove(path)


def missing_parents(path: str) -> list[str]:
    """The folders above `path` that are not there, innermost first."""
    missing, parent = [], os.path.dirname(path)
    while parent and not os.path.lexists(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    return missing


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

"""The file of answers, or standard output."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

import storage
from errors import InputError
from files import replacing
from serving.lines import STANDARD


def check_output(source: str, output: str, overwrite: bool) -> None:
    """Raises InputError where the output is the input, or a file that may not be replaced.

    Args:
        source: --input; "-" is standard input.
        output: --output; "-" is standard output.
        overwrite: whether a file that exists may be replaced.
    """
    if storage.is_url(output):
        if not storage.isfile(output):
            return
        same = storage.abspath(source) == storage.abspath(output)
    else:
        written = _status(output, 1)
        if written is None or not stat.S_ISREG(written.st_mode):
            return
        read = _status(source, 0)
        same = read is not None and os.path.samestat(read, written)
    if same:
        raise InputError(
            f"--output should be another file than --input. Received: {source} and"
            f" {output}, which are the same"
        )
    if output != STANDARD and not overwrite:
        raise InputError(
            f"{output}: --output should not exist yet, or --overwrite be given, with which it"
            " is replaced when all rows are answered"
        )


def _status(path: str, descriptor: int) -> os.stat_result | None:
    try:
        return os.fstat(descriptor) if path == STANDARD else os.stat(path)
    except OSError:  # there is none, or opening it will say what is wrong
        return None


@contextlib.contextmanager
def opened_output(output: str) -> Iterator[Callable[[str], Any]]:
    """A function that writes; a file appears when all is written."""
    if output == STANDARD:
        if sys.stdout is None:
            raise InputError("standard output is closed; say --output")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
        sys.stdout.reconfigure(encoding="utf-8")
        yield lambda text: print(text, end="", flush=True)
        return
    local = not storage.is_url(output)
    if local and os.path.exists(output) and not os.path.isfile(output):
        with open(output, "w", encoding="utf-8", newline="") as file:
            yield file.write  # a device or a named pipe, which stays what it is
        return
    with replacing(output) as path, open(path, "w", encoding="utf-8", newline="") as file:
        yield file.write

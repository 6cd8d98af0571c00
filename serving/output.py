"""The file of answers, or standard output."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import storage
from errors import InputError
from files import replacing
from serving.lines import STANDARD


def check_output(output: str, overwrite: bool) -> None:
    """Raises InputError where --output is a file that may not be replaced; "-" is none."""
    if output != STANDARD and storage.isfile(output) and not overwrite:
        raise InputError(
            f"{output}: --output should not exist yet, or --overwrite be given, with which it"
            " is replaced when all rows are answered"
        )


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

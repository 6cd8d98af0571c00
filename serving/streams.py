"""Input and output files of rows and answers; "-" is standard input or output."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tqdm

from convbert.common import storage
from convbert.common.errors import InputError
from convbert.common.files import replacing
from convbert.data.readers.base import reject_other_encodings

_STANDARD = "-"


class Lines(contextlib.AbstractContextManager):
    """The lines of a file or of standard input; messages use `name`."""

    def __init__(self, path: str):
        self.name = "standard input" if path == _STANDARD else path
        if path == _STANDARD and sys.stdin is None:
            raise InputError(f"{self.name} is closed; use --input")
        self._file = sys.stdin.buffer if path == _STANDARD else storage.open(path, "rb")
        regular = path != _STANDARD and storage.isfile(path)
        self._bar = tqdm.tqdm(
            total=storage.getsize(path) if regular else None,
            unit="B",
            unit_scale=True,
            mininterval=0.5 if sys.stderr.isatty() else 15,  # keeps log files short
            disable=not regular,
        )

    def __exit__(self, *error: Any) -> None:
        self._bar.close()
        self._file.close()

    def read(self) -> Iterator[bytes]:
        """Yields the lines with their line ends."""
        try:
            for number, line in enumerate(self._file):
                if number == 0:
                    reject_other_encodings(line, self.name)
                self._bar.update(len(line))
                yield line
        except OSError as error:
            raise InputError(f"{self.name}: cannot be read: {error.strerror}") from error


def check_output(output: str, overwrite: bool) -> None:
    """Raises InputError if --output is a folder, or a file that may not be replaced."""
    if storage.isdir(output):
        raise InputError(f"{output}: --output should be a file. Received: a folder")
    if output != _STANDARD and storage.isfile(output) and not overwrite:
        expected = "--output should not exist yet, or --overwrite be given"
        raise InputError(f"{output}: {expected}, with which it is replaced in the end")


@contextlib.contextmanager
def opened_output(output: str) -> Iterator[Callable[[str], Any]]:
    """Yields a function that writes; a file appears when everything is written."""
    if output == _STANDARD:
        if sys.stdout is None:
            raise InputError("standard output is closed; use --output")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # lets `| head` end it silently
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield lambda text: print(text, end="", flush=True)
        return
    with replacing(output) as path, open(path, "w", encoding="utf-8", newline="") as file:
        yield file.write

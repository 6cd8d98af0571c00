"""The lines of a file or of standard input; of a pipe or a terminal as they arrive."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tqdm

import storage
from errors import InputError

STANDARD = "-"
_BLOCK = 1 << 16  # bytes; what a pipe holds


class Lines(contextlib.AbstractContextManager):
    """An open file, or standard input; "-" is standard input, and `name` the file in messages.

    `regular` says whether all lines are there from the beginning, as they are not in a pipe.

    Raises:
        InputError: standard input is closed.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str):
        self.name = "standard input" if path == STANDARD else path
        if path == STANDARD and sys.stdin is None:
            raise InputError(f"{self.name} is closed; say --input")
        self._file = sys.stdin.buffer if path == STANDARD else storage.open(path, "rb")
        self.regular, size = True, None
        if storage.is_url(path):
            size = storage.getsize(path)
        else:
            status = os.fstat(self._file.fileno())
            self.regular, size = stat.S_ISREG(status.st_mode), status.st_size
        self._read = 0
        self._bar = tqdm.tqdm(
            total=size,
            unit="B",
            unit_scale=True,
            mininterval=0.5 if sys.stderr.isatty() else 15,  # a log file wants few lines
            disable=path == STANDARD or not self.regular,
        )

    def __exit__(self, *error: Any) -> None:
        self._bar.close()
        self._file.close()

    def read(self, before_waiting: Callable[[], None]) -> Iterator[bytes]:
        """Yields the lines, with what ends them; InputError when it cannot be read.

        `before_waiting` is called when the next line has not come yet, before it is waited for.
        """
        for line in self._file if self.regular else self._arriving(before_waiting):
            self._read += len(line)
            yield line

    def show(self) -> None:
        """Moves the progress bar to the last line that was read."""
        self._bar.update(self._read - self._bar.n)

    def _arriving(self, before_waiting: Callable[[], None]) -> Iterator[bytes]:
        descriptor, begun = self._file.fileno(), []  # parts of a line whose end has not come
        while True:
            if not select.select([descriptor], [], [], 0)[0]:
                before_waiting()
            try:
                block = os.read(descriptor, _BLOCK)
            except OSError as error:
                raise InputError(f"{self.name}: cannot be read: {error.strerror}") from error
            if not block:
                break
            *lines, rest = block.split(b"\n")
            for line in lines:
                yield b"".join([*begun, line, b"\n"])
                begun = []
            if rest:
                begun.append(rest)
        if begun:
            yield b"".join(begun)

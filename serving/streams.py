"""The file of rows and the file of answers; "-" is standard input, or standard output."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tqdm

from common import storage
from common.errors import InputError
from common.files import replacing
from data.encodings import reject_other_encodings

_STANDARD = "-"
_BLOCK = 1 << 16  # bytes; what a pipe holds
_WINDOW = 512  # rows that are answered together, those of similar length in one batch


class Lines(contextlib.AbstractContextManager):
    """The lines of a file or of standard input; of a pipe or a terminal as they arrive.

    Attributes:
        name: the file in messages.
        regular: whether all lines are there from the beginning, as they are not in a pipe.
    """

    def __init__(self, path: str):
        self.name = "standard input" if path == _STANDARD else path
        if path == _STANDARD and sys.stdin is None:
            raise InputError(f"{self.name} is closed; say --input")
        self._file = sys.stdin.buffer if path == _STANDARD else storage.open(path, "rb")
        if storage.is_url(path):
            self.regular, size = True, storage.getsize(path)
        else:
            status = os.fstat(self._file.fileno())
            self.regular, size = stat.S_ISREG(status.st_mode), status.st_size
        self._bar = tqdm.tqdm(
            total=size,
            unit="B",
            unit_scale=True,
            mininterval=0.5 if sys.stderr.isatty() else 15,  # a log file wants few lines
            disable=path == _STANDARD or not self.regular,
        )

    def __exit__(self, *error: Any) -> None:
        self._bar.close()
        self._file.close()

    def read(self, before_waiting: Callable[[], None] = lambda: None) -> Iterator[bytes]:
        """Yields the lines, with what ends them.

        `before_waiting` is called when the next line has not come yet, before it is waited for.
        """
        lines = self._file if self.regular else self._arriving(before_waiting)
        for number, line in enumerate(lines):
            if number == 0:
                reject_other_encodings(line, self.name)
            self._bar.update(len(line))
            yield line

    def _arriving(self, before_waiting: Callable[[], None]) -> Iterator[bytes]:
        descriptor = self._file.fileno()
        begun: list[bytes] = []  # parts of a line whose end has not come
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


def write_answers(
    lines: Lines,
    write: Callable[[str], Any],
    read: Callable[[Iterator[bytes]], Iterator[Any]],
    answer: Callable[[list], Iterable[dict[str, Any]]],
) -> None:
    """Writes a JSON object for each row, in their order, before more lines are waited for.

    Args:
        read: from lines to rows.
        answer: from at least one row to as many objects.
    """
    waiting: list = []

    def flush() -> None:
        found = answer(waiting) if waiting else ()
        write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found))
        waiting.clear()

    for row in read(lines.read(before_waiting=flush)):
        waiting.append(row)
        if len(waiting) == _WINDOW:
            flush()
    flush()


def check_output(output: str, overwrite: bool) -> None:
    """Raises InputError where --output is a file that may not be replaced."""
    if output != _STANDARD and storage.isfile(output) and not overwrite:
        raise InputError(
            f"{output}: --output should not exist yet, or --overwrite be given, with which it"
            " is replaced when all rows are answered"
        )


@contextlib.contextmanager
def opened_output(output: str) -> Iterator[Callable[[str], Any]]:
    """A function that writes; a file appears when all is written."""
    if output == _STANDARD:
        if sys.stdout is None:
            raise InputError("standard output is closed; say --output")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield lambda text: print(text, end="", flush=True)
        return
    local = not storage.is_url(output)
    if local and os.path.exists(output) and not os.path.isfile(output):
        with open(output, "w", encoding="utf-8", newline="") as file:
            yield file.write  # a device or a named pipe, which stays what it is
        return
    with replacing(output) as path, open(path, "w", encoding="utf-8", newline="") as file:
        yield file.write

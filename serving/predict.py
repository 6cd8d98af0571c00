"""Asks an exported model about every row of a file, or of standard input.

    echo "A sentence." | python -m serving.predict --model OUT
    python -m serving.predict --model OUT --input reviews.tsv --output answers.jsonl

Writes one JSON object per row, in their order.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import tqdm
from absl import app, flags

from errors import InputError, main_with_clear_errors
from files import replacing
from serving.client import Client, signature_for
from serving.records import FORMATS, read_records

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Folder that export_savedmodel.py made.")
flags.DEFINE_string("input", "-", "The rows; - is standard input.")
flags.DEFINE_string("output", "-", "Where answers go, as JSON lines; - is standard output.")
flags.DEFINE_enum(
    "format", None, FORMATS, "Of the rows. Default: by the file's extension or first line."
)
flags.DEFINE_bool(
    "header", None, "Tables begin with names of columns. Default: as in the task's files."
)
flags.DEFINE_integer("batch_size", 32, "Rows that are computed at once.", lower_bound=1)
flags.DEFINE_string(
    "signature", None, "What to ask. Default: serving_default, or words for lists of words."
)

# Rows of a file that are sorted by length, in batches.
_WINDOW = 16
_STANDARD = "-"


def main(argv: list[str]) -> None:
    """Reads, asks and writes by windows of rows; never holds more than one."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    name = "standard input" if FLAGS.input == _STANDARD else FLAGS.input
    with opened_input() as (lines, window, show), opened_output() as write:
        first = next(lines, b"")
        lines = itertools.chain([first] if first else [], lines)
        client = Client(FLAGS.model, FLAGS.signature or signature_for(FLAGS.model, first))
        records = read_records(name, lines, client.inputs, FLAGS.format, FLAGS.header)
        while rows := list(itertools.islice(records, window)):
            for answer in client.answers(rows, FLAGS.batch_size):
                write(json.dumps(answer, ensure_ascii=False) + "\n")
            show()


@contextlib.contextmanager
def opened_input() -> Iterator[tuple[Iterator[bytes], int, Callable[[], None]]]:
    """The lines, how many rows to read at a time, and what to call when these are answered."""
    if FLAGS.input == _STANDARD:
        # Someone who types wants an answer to each line.
        yield iter(sys.stdin.buffer), 1 if sys.stdin.isatty() else FLAGS.batch_size, lambda: None
        return
    read = 0

    def counted(file: BinaryIO) -> Iterator[bytes]:
        nonlocal read
        for line in file:
            read += len(line)
            yield line

    size = os.path.getsize(FLAGS.input)
    seconds = 0.5 if sys.stderr.isatty() else 15  # a log file wants few lines
    with (
        open(FLAGS.input, "rb") as file,
        tqdm.tqdm(total=size, unit="B", unit_scale=True, mininterval=seconds) as bar,
    ):
        yield counted(file), _WINDOW * FLAGS.batch_size, lambda: bar.update(read - bar.n)


@contextlib.contextmanager
def opened_output() -> Iterator[Callable[[str], Any]]:
    """A function that writes; a file appears when all is written."""
    if FLAGS.output == _STANDARD:
        yield lambda text: print(text, end="", flush=True)
        return
    with replacing(FLAGS.output) as path, open(path, "w", encoding="utf-8", newline="") as file:
        yield file.write


if __name__ == "__main__":
    flags.mark_flags_as_required(["model"])
    app.run(main_with_clear_errors(main))

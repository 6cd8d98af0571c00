"""Asks an exported model about every row of a file, or of standard input.

    echo "A sentence." | python -m serving.predict --model OUT
    python -m serving.predict --model OUT --input reviews.tsv --output answers.jsonl

Writes one JSON object per row, in their order. Bytes that are not UTF-8 count as nothing. A row
that cannot be read ends it, or with --skip_errors is answered {"id": ..., "error": ...}; the exit
status is then 1, too.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl import app, flags

from errors import InputError, main_with_clear_errors
from serving.records import FORMATS, Record, read_records, source
from serving.streams import Lines, check_output, opened_output
from settings import read_json_object

if TYPE_CHECKING:
    from serving.client import Client

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Exported model, or model directory.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_string("input", "-", "File of rows; - is standard input.")
flags.DEFINE_string("output", "-", "File of answers, as JSON lines; - is standard output.")
flags.DEFINE_bool("overwrite", False, "Replacement of an output file that exists.")
flags.DEFINE_enum(
    "format", None, FORMATS, "Format of the rows. Default: by the file's extension or first line."
)
flags.DEFINE_bool(
    "header", None, "Column names in the first row of tables. Default: as in the task's files."
)
flags.DEFINE_string(
    "signature", None, "Signature to ask. Default: serving_default, or words for lists of words."
)
flags.DEFINE_string(
    "options", "", "JSON object or file of what the signature takes besides texts, for all rows."
)
flags.DEFINE_bool(
    "skip_errors",
    False,
    "An error as the answer to a row that cannot be read, instead of the end of the command.",
)

_WINDOW = 512  # rows that are answered together, those of similar length in one batch


class Window:
    """Rows that are answered together, in their order."""

    def __init__(self, write: Callable[[str], Any]):
        self.client: Client | None = None
        self._write = write
        self._rows: list[Record | tuple[str, InputError]] = []  # or id and error
        self._count, self._errors = 0, []

    def add(self, row: Record | tuple[str, InputError]) -> None:
        """Takes a row, or the id and the error of one that could not be read."""
        self._rows.append(row)
        if len(self._rows) == _WINDOW:
            self.flush()

    def flush(self) -> None:
        """Answers the rows that were taken."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        self._count += len(rows)
        answers = iter(self.client.rows([row for row in rows if isinstance(row, Record)]))
        for row in rows:
            if isinstance(row, Record):
                answer = next(answers)
            else:
                self._errors.append(row[1])
                answer = {"id": row[0], "error": str(row[1])}
            self._write(json.dumps(answer, ensure_ascii=False) + "\n")

    def check(self) -> None:
        """Raises InputError where rows could not be read."""
        if self._errors:
            raise InputError(
                f"{len(self._errors)} of {self._count} rows could not be read and have an `error`"
                f" in place of an answer; the first: {self._errors[0]}"
            )


def main(_: list[str]) -> None:
    """Reads, asks and writes by windows of rows."""
    check_output(FLAGS.output, FLAGS.overwrite)
    options = read_json_object(FLAGS.options, "--options")
    from serving.description import signature_for  # TensorFlow: it takes seconds
    from serving.model import load

    model = load(FLAGS.model, plugins=FLAGS.plugins)
    with Lines(FLAGS.input) as lines, opened_output(FLAGS.output) as write:
        window = Window(write)
        rows = source(lines.name, lines.read(before_waiting=window.flush), FLAGS.format)
        signature = FLAGS.signature or signature_for(model.description, rows)
        window.client = model.client(signature, options)
        rejected = (lambda *row: window.add(row)) if FLAGS.skip_errors else None
        for record in read_records(rows, window.client.inputs, FLAGS.header, rejected):
            window.add(record)
        window.flush()
    window.check()


if __name__ == "__main__":
    flags.mark_flags_as_required(["model"])
    app.run(main_with_clear_errors(main))

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
import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl import app, flags

import plugins
from errors import InputError, main_with_clear_errors
from serving.description import inputs_of, options_of, read_description, signature_for
from serving.records import FORMATS, Record, read_records, source
from serving.streams import Lines, check_output, opened_output
from settings import read_json_object

if TYPE_CHECKING:
    from serving.client import Client

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Folder or LiteRT file, as export_savedmodel.py makes it.")
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
flags.DEFINE_integer("batch_size", 32, "Batch size, in rows.", lower_bound=1)
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

_BATCHES = 16  # of rows of a file that are sorted by length


class Window:
    """Rows that are answered together, in their order; no more of them than `size` are held."""

    def __init__(self, size: int, write: Callable[[str], Any]):
        self.client: Client | None = None
        self._size, self._write = size, write
        self._rows: list[Record | tuple[str, InputError]] = []
        self._count, self._rejected = 0, 0
        self._first_error: InputError | None = None

    def add(self, row: Record | tuple[str, InputError]) -> None:
        """Takes a row, or the id and the error of one that could not be read."""
        self._rows.append(row)
        if len(self._rows) == self._size:
            self.flush()

    def reject(self, identity: str, error: InputError) -> None:
        """Takes a row that could not be read."""
        self._rejected += 1
        self._first_error = self._first_error or error
        self.add((identity, error))

    def flush(self) -> None:
        """Answers the rows that were taken."""
        rows, self._rows = self._rows, []
        self._count += len(rows)
        asked = [row for row in rows if isinstance(row, Record)]
        answers = self.client.answers(asked, FLAGS.batch_size) if asked else iter(())
        for row in rows:
            if isinstance(row, Record):
                answer = next(answers)
            else:
                answer = {"id": row[0], "error": str(row[1])}
            self._write(json.dumps(answer, ensure_ascii=False) + "\n")

    def check(self) -> None:
        """Raises InputError where rows were rejected."""
        if self._rejected:
            raise InputError(
                f"{self._rejected} of {self._count} rows could not be read and have an `error` in"
                f" place of an answer; the first: {self._first_error}"
            )


def main(_: list[str]) -> None:
    """Reads, asks and writes by windows of rows."""
    plugins.load(FLAGS.plugins)
    check_output(FLAGS.output, FLAGS.overwrite)
    description = read_description(FLAGS.model)
    options = read_json_object(FLAGS.options, "--options")
    if FLAGS.signature:
        inputs_of(description, FLAGS.signature)  # before rows are waited for
        options_of(description, FLAGS.signature, options)
    with Lines(FLAGS.input) as lines, opened_output(FLAGS.output) as write:
        # Of a file, rows of similar length share a batch.
        window = Window(FLAGS.batch_size * (_BATCHES if lines.regular else 1), write)
        rows = source(lines.name, lines.read(before_waiting=window.flush), FLAGS.format)
        signature = FLAGS.signature or signature_for(description, rows)
        rejected = window.reject if FLAGS.skip_errors else None
        records = read_records(rows, inputs_of(description, signature), FLAGS.header, rejected)
        first = list(itertools.islice(records, 1))  # what is wrong with the columns is said early
        from serving.client import Client  # TensorFlow: it takes seconds

        window.client = Client.of(FLAGS.model, signature, options)
        for record in itertools.chain(first, records):
            window.add(record)
        window.flush()
    window.check()


if __name__ == "__main__":
    flags.mark_flags_as_required(["model"])
    app.run(main_with_clear_errors(main))

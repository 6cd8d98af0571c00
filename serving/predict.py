"""Predicts with a model for every row of a file or of standard input.

    echo "A sentence." | convbert predict --model OUT
    convbert predict --model OUT --input reviews.tsv --output answers.jsonl

Writes one JSON object per row, in order. Bytes that are not UTF-8 become U+FFFD. Stops at a row
that cannot be read.
"""

from __future__ import annotations

import convbert.common.startup  # TensorFlow reads the environment when it is imported

# isort: split
import itertools
import json

from absl import app, flags

from convbert.common.errors import main_with_clear_errors
from convbert.common.settings import read_json_object
from convbert.serving.records import FORMATS, read_records, source
from convbert.serving.streams import Lines, check_output, opened_output

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Exported model, or model directory.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_bool("trust", False, "Load a SavedModel whatever its graph does.")
flags.DEFINE_string("input", "-", "File of rows; - is standard input.")
flags.DEFINE_string("output", "-", "File of answers, as JSON lines; - is standard output.")
flags.DEFINE_bool("overwrite", False, "Replacement of an output file that exists.")
flags.DEFINE_enum("format", None, FORMATS, "Format. Default: by the extension or the first line.")
flags.DEFINE_string(
    "signature", None, "Signature to ask. Default: serving_default, or words for lists of words."
)
flags.DEFINE_string("options", "", "JSON object or file: other inputs of the signature.")
_WINDOW = 512  # rows to answer together, batched by similar length


def main(_: list[str]) -> None:
    """Reads rows, predicts and writes answers in windows of rows."""
    convbert.common.startup.keep_memory()
    check_output(FLAGS.output, FLAGS.overwrite)
    options = read_json_object(FLAGS.options, "--options")
    from convbert.serving.description import signature_for  # imports TensorFlow: takes seconds
    from convbert.serving.model import load

    model = load(FLAGS.model, plugins=FLAGS.plugins, trust=FLAGS.trust)
    with Lines(FLAGS.input) as lines, opened_output(FLAGS.output) as write:
        rows = source(lines.name, lines.read(), FLAGS.format)
        signature = FLAGS.signature or signature_for(model.description, rows)
        client = model.client(signature, options)
        records = read_records(rows, client.inputs)
        while waiting := list(itertools.islice(records, _WINDOW)):
            answers = client.rows(waiting)
            write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in answers))


if __name__ == "__main__":
    flags.mark_flags_as_required(["model"])
    app.run(main_with_clear_errors(main))

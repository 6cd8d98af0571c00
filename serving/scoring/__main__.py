"""Scores every line of a file, or of standard input, by a pre-trained model.

    echo "A sentence." | python -m serving.scoring --model my_data/models/mine
    python -m serving.scoring --model my_savedmodel --input sentences.txt --output scores.jsonl

Writes one JSON object per line, in their order: the sentence, its log score, which is a sum over
word pieces and higher where the model takes the sentence for more natural, the numbers of word
pieces and of words, and the method. Methods are self_critic, causal, pseudo_log_likelihood, and
discriminator_heuristic, which is no log-probability; docs/serving.md says which model offers which.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import common.library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import sys
from collections.abc import Iterator
from typing import Any

from absl import app, flags, logging

from common.errors import InputError, main_with_clear_errors
from serving.records import Record, read_records, source
from serving.streams import Lines, check_output, opened_output, write_answers

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Model directory of pre-training, or exported model.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_string("input", "-", "File of sentences, one per line; - is standard input.")
flags.DEFINE_string("output", "-", "File of scores, as JSON lines; - is standard output.")
flags.DEFINE_bool("overwrite", False, "Replacement of an output file that exists.")
flags.DEFINE_string(
    "method",
    None,
    "Scoring method: self_critic, causal, discriminator_heuristic, pseudo_log_likelihood, or a"
    " plug-in's. Default: the first of these that the model offers, or the exported one.",
)
flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Maximum sequence length, beyond which sentences are divided. Default: as in training.",
)
flags.DEFINE_enum(
    "precision", None, ["float32", "mixed_bfloat16"], "Dtype policy of compute. Default: float32."
)


def main(_: list[str]) -> None:
    """Checks the flags, reads, scores and writes by windows of lines."""
    logging.set_verbosity(logging.WARNING)
    check_output(FLAGS.output, FLAGS.overwrite)
    from serving.model import load  # TensorFlow: it takes seconds

    model = load(
        FLAGS.model,
        plugins=FLAGS.plugins,
        max_seq_length=FLAGS.max_seq_length,
        precision=FLAGS.precision,
        scoring_method=FLAGS.method,
    )
    method, client = model.description["scoring_method"], model.client("score")
    counts = dict.fromkeys(("sentences", "pieces", "unknown"), 0)

    def answer(waiting: list[Record]) -> Iterator[dict[str, Any]]:
        for record, row in zip(waiting, client.rows(waiting)):
            text = record.values["text"]
            if not row["num_pieces"]:
                raise InputError(
                    f"{record.where}: a sentence to score should have at least one word piece."
                    f" Received: {text!r}"
                )
            counts["sentences"] += 1
            counts["pieces"] += row["num_pieces"]
            counts["unknown"] += row.pop("num_unknown")
            yield {"id": row.pop("id"), "text": text, **row, "method": method}

    with Lines(FLAGS.input) as lines, opened_output(FLAGS.output) as write:

        def read(arriving: Iterator[bytes]) -> Iterator[Record]:
            return read_records(source(lines.name, arriving, "lines"), client.inputs)

        write_answers(lines, write, read, answer)
    found = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"{found}; by {method}", file=sys.stderr)


if __name__ == "__main__":
    flags.mark_flags_as_required(["model"])
    app.run(main_with_clear_errors(main))

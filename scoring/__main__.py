"""Scores every line of a file, or of standard input, by a pre-trained model.

    echo "A sentence." | python -m scoring --model my_data/models/mine
    python -m scoring --model my_savedmodel --input sentences.txt --output scores.jsonl

Writes one JSON object per line, in their order: the sentence, its log score, which is a sum over
word pieces and higher where the model takes the sentence for more natural, the numbers of word
pieces and of words, and the method. Methods are self_critic, causal, pseudo_log_likelihood, and
discriminator_heuristic, which is no log-probability; docs/scoring.md says which model offers which.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import json
import sys

from absl import app, flags, logging

import plugins
from errors import main_with_clear_errors
from finetune.readers.lines import Place, read_lines
from serving.streams import Lines, check_output, opened_output

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Model directory of pre-training, or SavedModel.")
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

_WINDOW = 1024  # sentences that are sorted by length together


def main(_: list[str]) -> None:
    """Checks the flags, reads, scores and writes by windows of lines."""
    logging.set_verbosity(logging.WARNING)
    plugins.load(FLAGS.plugins)
    check_output(FLAGS.output, FLAGS.overwrite)
    from scoring.models import method_of  # TensorFlow: it takes seconds
    from scoring.scorer import open_scorer

    method_of(FLAGS.model, FLAGS.method)
    with Lines(FLAGS.input) as source, opened_output(FLAGS.output) as write:
        given = {"max_seq_length": FLAGS.max_seq_length, "precision": FLAGS.precision}
        options = {name: value for name, value in given.items() if value is not None}
        scorer = open_scorer(FLAGS.model, FLAGS.method, **options)
        waiting: list[tuple[Place, str]] = []  # and sentences
        pieces = 0

        def flush() -> None:
            nonlocal pieces
            places, sentences = zip(*waiting) if waiting else ((), ())
            waiting.clear()
            found = scorer.scores(sentences, lambda i: str(places[i]))
            for place, sentence, values in zip(places, sentences, found):
                pieces += values.num_pieces
                row = {"id": str(place.number - 1), "text": sentence, **values._asdict()}
                row["method"] = scorer.method
                write(json.dumps(row) + "\n")

        count = 0
        for place, sentence in read_lines(source.name, source=source.read(flush)):
            count = place.number
            waiting.append((place, sentence))
            if len(waiting) == _WINDOW:
                flush()
        flush()
    print(
        f"{count} sentences, {pieces} pieces, {scorer.num_unknown} of them unknown; by"
        f" {scorer.method}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    flags.mark_flags_as_required(["model"])
    app.run(main_with_clear_errors(main))

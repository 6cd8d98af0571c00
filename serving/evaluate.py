"""Scores a fine-tuned or exported model on a labelled file.

    convbert evaluate --model my_results/reviews --input my_task/test.csv

Prints a line for each metric of the task; --json prints one JSON object instead.
"""

from __future__ import annotations

import convbert.common.startup  # TensorFlow reads the environment when it is imported

# isort: split
import json

from absl import app, flags

from convbert.common.errors import main_with_clear_errors
from convbert.common.files import check_there

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Run of run_finetuning.py, folder of runs, or exported model.")
flags.DEFINE_string("input", None, "File of labelled examples, as the task's development files.")
flags.DEFINE_list("metrics", None, "Names of metrics, comma-separated. Default: the task's.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_bool("trust", False, "Load a SavedModel whatever its graph does.")
flags.DEFINE_bool("json", False, "Output as one JSON object.")


def main(_: list[str]) -> None:
    """Loads the model, scores its answers and prints the scores."""
    convbert.common.startup.keep_memory()
    check_there("--input", FLAGS.input)
    from convbert.serving.model import load  # imports TensorFlow, which takes seconds

    model = load(FLAGS.model, plugins=FLAGS.plugins, trust=FLAGS.trust)
    found = model.evaluate(FLAGS.input, metrics=FLAGS.metrics or None)
    labels, count = found.by_label(), len(found.predicted.examples)
    intervals = found.intervals()
    if FLAGS.json:
        shown = {"examples": count, "scores": found.scores, "intervals": intervals}
        print(json.dumps({**shown, "by_label": labels.to_dict(orient="index")}))
        return
    print(f"{count} examples")
    for name, score in found.scores.items():
        said = "undefined" if score is None else f"{score:.2f}"
        low, high = intervals.get(name, (None, None))
        print(f"{name}: {said}" if low is None else f"{name}: {said} ({low:.2f} to {high:.2f})")
    if len(labels):
        print(f"\n{labels.to_string(float_format='{:.2f}'.format)}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["model", "input"])
    app.run(main_with_clear_errors(main))

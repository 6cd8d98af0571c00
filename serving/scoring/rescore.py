"""Rescores n-best lists of a speech recogniser with a language model.

    convbert rescore --dev dev-clean.am.json --test dev-other.am.json --model MODEL
    convbert rescore --dev dev.am.json --test test.am.json --scores mine.jsonl

Lists are a JSON object as in mlm-scoring; higher scores are better:

    {"utterance": {"ref": "TEXT", "hyp_1": {"score": -4.06, "text": "TEXT"}, "hyp_2": ...}, ...}

For each utterance, chooses the first hypothesis with the highest score + lambda * log score of the
language model. Lambda is the smallest one with the lowest word error rate on the dev lists. A
hypothesis without words, or without pieces in the model's tokenizer, has no log score: it is chosen
only if the recogniser prefers it.
"""

from __future__ import annotations

import convbert.common.startup  # TensorFlow reads the environment when it is imported

# isort: split
import functools
import math

from absl import app, flags

from convbert.common.errors import InputError, main_with_clear_errors, require_flags
from convbert.common.files import write_json
from convbert.serving.scoring import nbest

FLAGS = flags.FLAGS
flags.DEFINE_string("dev", None, "N-best lists on which lambda is chosen.")
flags.DEFINE_string("test", None, "N-best lists to which it is applied.")
flags.DEFINE_string("model", None, "Model that scores the sentences.")
flags.DEFINE_string("method", None, "Method of scoring. Default: the one that the model offers.")
flags.DEFINE_string("scores", None, "JSON lines of `text` and `score`, in place of --model.")
flags.DEFINE_list("lambdas", [f"{weight:g}" for weight in nbest.LAMBDAS], "Weights to choose from.")
flags.DEFINE_string("output", None, "JSON file for the report.")
flags.DEFINE_bool("trust", False, "Load a SavedModel whatever its graph does.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")


def main(_: list[str]) -> None:
    """Reads lists, scores sentences, chooses lambda and reports."""
    convbert.common.startup.keep_memory()
    needed = {name: f"a file of n-best lists for {name}" for name in ("dev", "test")}
    require_flags(FLAGS, needed)
    if bool(FLAGS.model) == bool(FLAGS.scores):
        raise InputError("either --model or --scores should be given")
    if FLAGS.scores and (FLAGS.method or FLAGS.plugins or FLAGS.trust):
        raise InputError("--method, --plugins and --trust are for --model, not for --scores")
    try:
        weights = sorted(map(float, FLAGS.lambdas))
    except ValueError as error:
        raise InputError(f"--lambdas should be numbers. Received: {FLAGS.lambdas}") from error
    if not weights or not (weights[0] >= 0 and math.isfinite(sum(weights))):
        raise InputError(f"--lambdas should be at least 0. Received: {FLAGS.lambdas}")
    if FLAGS.scores:
        score = functools.partial(nbest.given_scores, FLAGS.scores)
    else:
        options = {"plugins": FLAGS.plugins, "trust": FLAGS.trust, "scoring_method": FLAGS.method}
        score = functools.partial(nbest.model_scores, FLAGS.model, **options)
    dev, test = map(nbest.read_lists, (FLAGS.dev, FLAGS.test))
    report = nbest.rescored(dev, test, score, weights)
    best = min(report["dev"].values())
    print(f"lambda {report['lambda']:g}: word error rate {best:.2f} of {FLAGS.dev}")
    tested = ", ".join(f"{name} {rate:.2f}" for name, rate in report["test"].items())
    print(f"{FLAGS.test}: {tested}; difference {-report['better_by']:+.2f}")
    if FLAGS.output:
        write_json(FLAGS.output, report)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

"""Measures the perplexity of a causal language model on a text, per token and per word.

    convbert perplexity --model_dir MODEL --corpus valid.txt
    convbert perplexity --model_dir MODEL --corpus valid.txt --context 64

The text is a stream of tokens, with an end (`<eos>`, or [SEP] of word pieces) behind each line of a
corpus of lines or of a vocabulary of words, else behind each document. Each token is predicted
once, in windows: as many new tokens as fit after --context tokens that were predicted before.
With a context of 0 the windows are disjoint blocks. See docs/guide.md.
"""

from __future__ import annotations

import convbert.common.startup  # TensorFlow reads the environment when it is imported

# isort: split
import math
from typing import Any

from absl import app, flags

from convbert.common import plugins, storage
from convbert.common.errors import main_with_clear_errors, require_flags
from convbert.common.files import check_there, write_json
from convbert.data.corpus import CORPUS_FORMATS, NAMES

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "Model directory of run_pretraining.py.")
flags.DEFINE_string("corpus", None, "Text to measure on: a file, folder or data set name.")
flags.DEFINE_enum("corpus_format", "language_model", CORPUS_FORMATS, "Format of the corpus.")
flags.DEFINE_integer("context", 0, "Tokens before the new ones of a window.", lower_bound=0)
flags.DEFINE_integer("batch_size", 16, "Batch size, in windows.", lower_bound=1)
flags.DEFINE_string("output", None, "JSON file for the report.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")


def main(_: list[str]) -> None:
    """Checks the flags and measures the perplexity."""
    convbert.common.startup.keep_memory()
    plugins.load(FLAGS.plugins)
    needed = {"model_dir": "a model directory of run_pretraining.py", "corpus": "a text"}
    require_flags(FLAGS, needed)
    if FLAGS.corpus_format not in NAMES:
        check_there("--corpus", FLAGS.corpus)
    from convbert.serving.scoring import perplexity_model  # imports TensorFlow, which takes seconds

    model = perplexity_model.CausalModel(FLAGS.model_dir)
    context, stride = FLAGS.context, model.stride(FLAGS.context)
    windows = f"disjoint blocks of {stride} tokens"
    if context:
        windows = f"sliding windows of {stride} new tokens after {context} of context"
    measured = perplexity_model.corpus_text(FLAGS.corpus, FLAGS.corpus_format, FLAGS.model_dir)
    losses = model.token_losses(measured.stream, context, FLAGS.batch_size)
    tokens = len(losses)
    report: dict[str, Any] = {
        "model_dir": storage.abspath(FLAGS.model_dir),
        "step": model.step,
        "text": FLAGS.corpus,
        "protocol": {"context": context, "stride": stride, "about": windows},
        "separator": measured.separator,
        "tokens": tokens,
        "words": measured.words,
        "unknown_tokens": measured.unknown_tokens,
        "nats": float(losses.sum(dtype="float64")),
    }
    report["perplexity"] = math.exp(report["nats"] / tokens)
    per_word = report["nats"] / measured.words  # large where no spaces separate words
    report["perplexity_per_word"] = math.exp(per_word) if per_word < 700 else None
    print(
        f"{report['text']}: perplexity {report['perplexity']:.2f} of {tokens:,} tokens"
        f" ({measured.unknown_tokens / tokens:.2%} unknown),"
        f" {report['perplexity_per_word'] or math.inf:.2f} of {measured.words:,} words"
        f" ({measured.separator} counts as one); {windows}; step {model.step} of"
        f" {report['model_dir']}"
    )
    if FLAGS.output:
        write_json(FLAGS.output, report)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

"""Rescores n-best lists of a speech recogniser with language models.

    python -m scoring.rescore --dev dev-clean.am.json --test dev-other.am.json \\
        --model my_data/models/mine --output_dir my_rescoring
    python -m scoring.rescore --dev dev.tsv --test test.tsv --scores mine.scores.jsonl \\
        --lambdas 0:2:0.1 --output_dir my_rescoring

Of each utterance the hypothesis of the highest score + lambda * log score of the language model is
taken, of equal ones the first. Lambda is the one of the lowest word error rate on the dev lists, of
several the smallest. Language models do not compare words with silence: a hypothesis without words,
or of which the model's tokenizer keeps nothing, is taken where the recogniser prefers it, whatever
lambda is. Sentence scores are kept in the output
folder, so the same command with other --lambdas takes seconds, and after an interruption it
resumes. See scoring/nbest.py for the formats.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import app, flags, logging

import plugins
import storage
from errors import InputError, main_with_clear_errors, require_flags, warn
from locks import locked
from scoring import rescore_scores
from scoring.models import method_of
from scoring.nbest import read_lists
from scoring.rescore_report import REPORT, write_report
from scoring.rescore_scores import KeptScores
from scoring.rescore_search import (
    DEFAULT_LAMBDAS,
    NORMALIZATIONS,
    NBest,
    choices,
    improvement,
    parse_lambdas,
)

FLAGS = flags.FLAGS
flags.DEFINE_string("dev", None, "N-best lists on which lambda is chosen.")
flags.DEFINE_string("test", None, "N-best lists to which it is applied.")
flags.DEFINE_string("dev_references", None, "References of --dev, where it has none.")
flags.DEFINE_string("test_references", None, "References of --test, where it has none.")
flags.DEFINE_multi_string("model", [], "Model that scores the sentences, one each time.")
flags.DEFINE_string("method", None, "Method of scoring. Default: the one that the model offers.")
flags.DEFINE_multi_string(
    "scores", [], "JSON lines of sentences and scores in place of a model, one file each time."
)
flags.DEFINE_string(
    "lambdas",
    None,
    "Weights to search, as START:STOP:STEP or A,B,... Default: 0:1:0.05; 0:20:1 with --normalize.",
)
flags.DEFINE_enum("normalize", "none", NORMALIZATIONS, "What the scores of models are divided by.")
flags.DEFINE_integer("resamples", 10_000, "Resamples of the bootstrap.", lower_bound=100)
flags.DEFINE_integer("seed", 0, "Seed of the bootstrap.", lower_bound=0)
flags.DEFINE_string("output_dir", None, "Folder of the report and of the sentence scores.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
_SPLITS = ("dev", "test")


def main(argv: list[str]) -> None:
    """Reads lists, scores what has no score yet, searches and reports."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    needed = {name: f"a file of n-best lists for {name}" for name in _SPLITS}
    require_flags(FLAGS, needed | {"output_dir": "a folder for the report"})
    if storage.abspath(FLAGS.dev) == storage.abspath(FLAGS.test):
        warn("--dev and --test are one file: lambda is chosen on the lists it is reported for")
    plugins.load(FLAGS.plugins)
    logging.set_verbosity(logging.WARNING)
    lambdas = parse_lambdas(FLAGS.lambdas or DEFAULT_LAMBDAS[FLAGS.normalize])
    names = system_names()
    for model in FLAGS.model:
        method_of(model, FLAGS.method)  # there is one
    given = {split: FLAGS[f"{split}_references"].value for split in _SPLITS}
    lists = {split: NBest.of(read_lists(FLAGS[split].value, given[split])) for split in _SPLITS}
    files = [rescore_scores.read_scores(path) for path in FLAGS.scores]
    for kept in files:
        check_complete(kept, lists)
    with locked(FLAGS.output_dir):
        systems = {}
        for name, kept in zip(names, [*model_scores(lists, names), *files]):
            systems[name] = rescored(name, kept, lists, lambdas)
        report = {
            **{split: baselines(FLAGS[split].value, lists[split]) for split in _SPLITS},
            "words": "what whitespace separates, compared as they are",
            "normalization": FLAGS.normalize,
            "lambdas": lambdas.tolist(),
            "bootstrap": {"resamples": FLAGS.resamples, "seed": FLAGS.seed},
            "systems": systems,
        }
        print(write_report(FLAGS.output_dir, report))
    print(f"written: {os.path.join(FLAGS.output_dir, REPORT)}")


def system_names() -> list[str]:
    """Names of models, then of files of scores, by the last part of their paths.

    Raises:
        InputError: there is none, or two have one name.
    """
    paths = [*FLAGS.model, *FLAGS.scores]
    if not paths:
        raise InputError("--model or --scores is missing: it should say who scores the sentences")
    names = [os.path.basename(storage.abspath(path)) for path in paths]
    names = [name.removesuffix(rescore_scores.SUFFIX) for name in names]
    for name, path in zip(names, paths):
        if names.count(name) > 1:
            raise InputError(
                f"two systems are called {name!r}, the last part of their paths, such as {path}:"
                " rename one of them"
            )
    return names


def check_complete(kept: KeptScores, lists: dict[str, NBest]) -> None:
    """Raises InputError for the first hypothesis whose score is not in a file."""
    for split, nbest in lists.items():
        for utterance in nbest.utterances:
            for number, text in enumerate(utterance.hypotheses, 1):
                if text.split() and text not in kept.scores:
                    raise InputError(
                        f"{kept.path}: should have a score for hypothesis {number} of utterance"
                        f" {utterance.name!r} of {FLAGS[split].value}"
                    )


def model_scores(lists: dict[str, NBest], names: list[str]) -> Iterator[KeptScores]:
    """Scores by each model; those of an earlier run are taken from the output folder."""
    texts = [text for nbest in lists.values() for text in nbest.texts() if text.split()]
    for model, name in zip(FLAGS.model, names):
        about = rescore_scores.about_model(model, method_of(model, FLAGS.method))
        kept = rescore_scores.begun_scores(FLAGS.output_dir, name, about)
        if rescore_scores.missing_scores(kept, texts):
            from scoring.scorer import open_scorer  # TensorFlow: it takes seconds

            scorer = open_scorer(model, FLAGS.method)
            # The checkpoint may lack the networks of the method that its objective offers first.
            about["method"] = scorer.method
            kept = rescore_scores.begun_scores(FLAGS.output_dir, name, about)
            if missing := rescore_scores.missing_scores(kept, texts):
                print(f"{name}: {len(missing):,} sentences to score", flush=True)
                rescore_scores.complete(kept, about, missing, scorer)
        yield kept


def rescored(
    name: str, kept: KeptScores, lists: dict[str, NBest], lambdas: np.ndarray
) -> dict[str, Any]:
    """A system's part of the report: lambda of the dev lists, applied to the test lists."""
    chosen = {}
    for split, nbest in lists.items():
        scores, pieces, words = np.transpose(kept.of(nbest.texts()))
        divisors = {"none": 1, "pieces": pieces, "words": words}
        scores = nbest.language_scores(scores / divisors[FLAGS.normalize])
        chosen[split] = choices(nbest, scores, lambdas)  # [L, U]
    curves = {split: nbest.rates(chosen[split]) for split, nbest in lists.items()}
    best = int(np.argmin(curves["dev"]))  # of equal ones the smallest
    if best == len(lambdas) - 1 > 0:
        warn(f"{name}: the best lambda, {lambdas[best]:g}, is the largest of --lambdas")
    test = chosen["test"][best]
    return {
        "about": kept.about,
        "lambda": float(lambdas[best]),
        **{split: nbest.summary(chosen[split][best]) for split, nbest in lists.items()},
        "improvement": improvement(lists["test"], test, FLAGS.resamples, FLAGS.seed),
        "curves": {split: rates.tolist() for split, rates in curves.items()},
        "seconds_per_1000": kept.seconds_per_1000,
    }


def baselines(path: str, nbest: NBest) -> dict[str, Any]:
    """What there is to be rescored: the recogniser's choices, and the best ones."""
    return {
        "path": path,
        "utterances": len(nbest.utterances),
        "hypotheses": len(nbest.texts()),
        "reference_words": int(nbest.words.sum()),
        "one_best": nbest.summary(nbest.first_best()),
        "oracle": nbest.summary(nbest.oracle()),
    }


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

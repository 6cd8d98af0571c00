"""Rescores n-best lists of a speech recogniser with a language model.

    python -m scoring.rescore --dev dev-clean.am.json --test dev-other.am.json --model MODEL
    python -m scoring.rescore --dev dev.am.json --test test.am.json --scores mine.jsonl

Lists are a JSON object as of mlm-scoring, whose scores are the higher the better:

    {"utterance": {"ref": "TEXT", "hyp_1": {"score": -4.06, "text": "TEXT"}, "hyp_2": ...}, ...}

Takes of each utterance the hypothesis of the highest score + lambda * log score of the language
model, of equal ones the first. Lambda is the one of the lowest word error rate on the dev lists, of
several the smallest. A hypothesis without words, or of which the model's tokenizer keeps nothing,
has no log score: it stays where the recogniser prefers it, and is not taken elsewhere.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import app, flags, logging
from rapidfuzz.distance import Levenshtein

import plugins
from errors import InputError, main_with_clear_errors, require_flags, warn
from files import is_unicode, parse_json, read_json, write_json
from finetune.readers.lines import read_lines

FLAGS = flags.FLAGS
flags.DEFINE_string("dev", None, "N-best lists on which lambda is chosen.")
flags.DEFINE_string("test", None, "N-best lists to which it is applied.")
flags.DEFINE_string("model", None, "Model that scores the sentences.")
flags.DEFINE_string("method", None, "Method of scoring. Default: the one that the model offers.")
flags.DEFINE_string("scores", None, "Sentences and scores of `python -m scoring`, not of --model.")
flags.DEFINE_list("lambdas", [f"{n / 20:g}" for n in range(21)], "Weights to choose from.")
flags.DEFINE_integer("resamples", 10_000, "Resamples of the bootstrap.", lower_bound=100)
flags.DEFINE_string("output", None, "JSON file for the report.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")


@dataclasses.dataclass(frozen=True)
class NBest:
    """N-best lists as arrays of U utterances and their N hypotheses at most.

    Attributes:
        references: what was said, U texts.
        hypotheses: texts of each utterance.
        scores: float64 [U, N], of the recogniser; -inf where an utterance has fewer hypotheses.
        errors: int64 [U, N], substitutions, deletions and insertions of words.
        words: int64 [U], of the references.
    """

    references: Sequence[str]
    hypotheses: Sequence[Sequence[str]]
    scores: np.ndarray
    errors: np.ndarray
    words: np.ndarray

    @classmethod
    def of(
        cls,
        references: Sequence[str],
        hypotheses: Sequence[Sequence[str]],
        scores: Sequence[Sequence[float]],
    ) -> NBest:
        """Counts the errors of all hypotheses."""
        errors = [
            [Levenshtein.distance(reference.split(), text.split()) for text in texts]
            for reference, texts in zip(references, hypotheses)
        ]
        words = np.array([len(reference.split()) for reference in references], np.int64)
        padded = _padded(scores, -np.inf), _padded(errors, np.iinfo(np.int64).max)
        return cls(references, hypotheses, *padded, words)

    def first_best(self) -> np.ndarray:
        """The recogniser's choice, int64 [U]; of equal scores the first."""
        return np.argmax(self.scores, axis=1)

    def oracle(self) -> np.ndarray:
        """The hypotheses with the fewest errors, int64 [U]; of equal ones the first."""
        return np.argmin(self.errors, axis=1)

    def choice(self, log_scores: dict[str, float], weight: float) -> np.ndarray:
        """The hypotheses of the highest score + `weight` * log score, int64 [U]."""
        if not weight:
            return self.first_best()
        first = self.first_best()
        added = _padded([[log_scores[t] for t in texts] for texts in self.hypotheses], 0.0)
        silent = np.isnan(added)
        added[silent] = -np.inf
        added[silent[np.arange(len(first)), first]] = 0.0  # the recogniser prefers silence
        return np.argmax(self.scores + weight * added, axis=1)

    def errors_of(self, choice: np.ndarray) -> np.ndarray:
        """Errors of one hypothesis of each utterance, int64 [U]."""
        return self.errors[np.arange(len(choice)), choice]

    def rate(self, choice: np.ndarray) -> float:
        """Word error rate in percent: the sum of all errors over the sum of all words."""
        return float(100.0 * self.errors_of(choice).sum() / self.words.sum())

    def improvement(self, choice: np.ndarray, resamples: int, seed: int = 0) -> list[float]:
        """The 95 % interval of the recogniser's rate minus that of a choice, in points.

        A paired bootstrap over utterances (percentiles): both rates are of the same draw.
        """
        fewer = self.errors_of(self.first_best()) - self.errors_of(choice)
        draw, found = np.random.default_rng(seed), []
        for _ in range(resamples):
            drawn = draw.integers(0, len(fewer), len(fewer))
            found.append(100.0 * fewer[drawn].sum() / max(1, self.words[drawn].sum()))
        return np.percentile(found, [2.5, 97.5]).tolist()


def _padded(rows: Sequence[Sequence[float]], filler: float) -> np.ndarray:
    """Rows of different lengths as an array [U, N]."""
    array = np.full([len(rows), max(map(len, rows))], filler, type(filler))
    for row, values in zip(array, rows):
        row[: len(values)] = values
    return array


def read_lists(path: str) -> NBest:
    """Reads n-best lists.

    Raises:
        InputError: the file or an utterance is not of the format; names both.
    """
    references, hypotheses, scores = [], [], []
    for name, item in read_json(path).items():
        item = dict(item) if isinstance(item, dict) else {}
        reference, found = item.pop("ref", None), item.values()
        if not isinstance(reference, str) or not found or not all(map(_is_hypothesis, found)):
            raise InputError(
                f"{path}: utterance {name!r} should have a text `ref` and, as `hyp_1`, `hyp_2` and"
                " so on, objects of a finite `score` and a `text`"
            )
        references.append(reference)
        hypotheses.append([each["text"] for each in found])
        scores.append([float(each["score"]) for each in found])
    if not any(reference.split() for reference in references):
        raise InputError(f"{path}: the references should hold at least one word")
    return NBest.of(references, hypotheses, scores)


def _is_hypothesis(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return False
    return is_unicode(value["text"]) and _is_number(value.get("score"))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def read_scores(path: str) -> dict[str, float]:
    """Log scores by sentence, of a file that `python -m scoring` wrote; NaN of no pieces."""
    found = {}
    for number, line in read_lines(path):
        row = parse_json(line, f"{path}, line {number}")
        if not isinstance(row.get("text"), str) or not _is_number(row.get("score")):
            raise InputError(f"{path}, line {number}: should have a `text` and a finite `score`")
        found[row["text"]] = row["score"] if row.get("num_pieces", 1) else math.nan
    return found


def log_scores(texts: Sequence[str]) -> dict[str, float]:
    """Log scores of all texts by --scores or --model; NaN of those that have no words or pieces."""
    asked = sorted({text for text in texts if text.split()}, key=len)
    if FLAGS.scores:
        found = read_scores(FLAGS.scores)
        if missing := [text for text in asked if text not in found]:
            raise InputError(
                f"{FLAGS.scores}: should have a score for each hypothesis. Received: none for"
                f" {len(missing)}, the first {missing[0]!r}"
            )
    else:
        from scoring.scorer import open_scorer  # TensorFlow: it takes seconds

        scorer = open_scorer(FLAGS.model, FLAGS.method)
        scores = scorer.scores(asked, allow_no_pieces=True)
        found = {t: s.score if s.num_pieces else math.nan for t, s in zip(asked, scores)}
    return {text: found[text] if text.split() else math.nan for text in texts}


def main(argv: list[str]) -> None:
    """Reads lists, scores the sentences, chooses lambda and reports."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    logging.set_verbosity(logging.WARNING)
    needed = {name: f"a file of n-best lists for {name}" for name in ("dev", "test")}
    require_flags(FLAGS, needed)
    if bool(FLAGS.model) == bool(FLAGS.scores):
        raise InputError("either --model or --scores should say who scores the sentences")
    try:
        weights = sorted(map(float, FLAGS.lambdas))
    except ValueError as error:
        raise InputError(f"--lambdas should be numbers. Received: {FLAGS.lambdas}") from error
    if not weights or not (weights[0] >= 0 and math.isfinite(sum(weights))):
        raise InputError(f"--lambdas should be at least 0. Received: {FLAGS.lambdas}")
    plugins.load(FLAGS.plugins)
    dev, test = read_lists(FLAGS.dev), read_lists(FLAGS.test)
    found = log_scores([t for each in (dev, test) for ts in each.hypotheses for t in ts])
    rates = [dev.rate(dev.choice(found, weight)) for weight in weights]
    weight = weights[int(np.argmin(rates))]  # of equal ones the smallest
    if weight == weights[-1] > 0:
        warn(f"the best lambda, {weight:g}, is the largest of --lambdas")
    chosen = test.choice(found, weight)
    report = {
        "lambda": weight,
        "dev": dict(zip(map("{:g}".format, weights), rates)),
        "test": {
            "1-best": test.rate(test.first_best()),
            "rescored": test.rate(chosen),
            "oracle": test.rate(test.oracle()),
        },
        "better_by": test.rate(test.first_best()) - test.rate(chosen),
        "interval": test.improvement(chosen, FLAGS.resamples),
    }
    if FLAGS.output:
        write_json(FLAGS.output, report)
    print(f"lambda {weight:g}: word error rate {min(rates):.2f} of {FLAGS.dev}")
    rates = ", ".join(f"{name} {rate:.2f}" for name, rate in report["test"].items())
    low, high = report["interval"]
    print(f"{FLAGS.test}: {rates}; better by {report['better_by']:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

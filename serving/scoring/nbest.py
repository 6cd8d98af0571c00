"""N-best lists of a speech recogniser: reading, choice of hypotheses, word error rates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from convbert.common.errors import InputError
from convbert.common.files import is_unicode, parse_json, read_json
from convbert.finetune.readers.lines import read_lines

LAMBDAS = tuple(n / 20 for n in range(21))  # weights to choose from


@dataclasses.dataclass(frozen=True)
class NBest:
    """N-best lists as arrays of U utterances with at most N hypotheses each.

    Attributes:
        references: U transcripts.
        hypotheses: the texts of each utterance's hypotheses.
        scores: float64 [U, N], the recogniser's scores; -inf for missing hypotheses.
        errors: int64 [U, N], substitutions, deletions and insertions of words.
        words: int64 [U], number of words in the references.
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
        """Returns the recogniser's choice, int64 [U]; ties go to the first."""
        return np.argmax(self.scores, axis=1)

    def oracle(self) -> np.ndarray:
        """Returns the hypotheses with the fewest errors, int64 [U]; ties go to the first."""
        return np.argmin(self.errors, axis=1)

    def choice(self, log_scores: dict[str, float], weight: float) -> np.ndarray:
        """Returns the hypotheses with the highest score + `weight` * log score, int64 [U]."""
        if not weight:
            return self.first_best()
        first = self.first_best()
        added = _padded([[log_scores[t] for t in texts] for texts in self.hypotheses], 0.0)
        silent = np.isnan(added)
        added[silent] = -np.inf
        added[silent[np.arange(len(first)), first]] = 0.0  # the recogniser prefers silence
        return np.argmax(self.scores + weight * added, axis=1)

    def rate(self, choice: np.ndarray) -> float:
        """Returns the word error rate in percent: all errors divided by all words."""
        return float(100.0 * self.errors[np.arange(len(choice)), choice].sum() / self.words.sum())


def _padded(rows: Sequence[Sequence[float]], filler: float) -> np.ndarray:
    """Pads rows of different lengths to an array [U, N]."""
    array = np.full([len(rows), max(map(len, rows))], filler, type(filler))
    for row, values in zip(array, rows):
        row[: len(values)] = values
    return array


def read_lists(path: str) -> NBest:
    """Reads n-best lists."""
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
    """Reads log scores by sentence from JSON lines; NaN if `num_pieces` is 0."""
    found = {}
    for where, line in read_lines(path):
        row = parse_json(line, where)
        if not isinstance(row.get("text"), str) or not _is_number(row.get("score")):
            raise InputError(f"{where}: should have a `text` and a finite `score`")
        found[row["text"]] = row["score"] if row.get("num_pieces", 1) else math.nan
    return found

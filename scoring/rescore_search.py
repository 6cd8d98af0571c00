"""Choices of hypotheses by combined scores, their errors, and what chance has to do with it.

All hypotheses of a set are arrays [U, N] of U utterances and their N hypotheses at most, and the
errors of each are counted once. A weight lambda then costs an argmax.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from errors import InputError
from scoring.nbest import Utterance
from scoring.word_errors import count_errors, count_words, kinds_of_errors

NORMALIZATIONS = ("none", "pieces", "words")
# Where --lambdas is not given: mlm-scoring's grid, and about as far for scores per piece or word.
DEFAULT_LAMBDAS = {"none": "0:1:0.05", "pieces": "0:20:1", "words": "0:20:1"}
_MOST_LAMBDAS = 10_000
_CONFIDENCE = 0.95
_BATCH = 250  # resamples at a time: 250 x 2,864 x 3 numbers are 17 MB


@dataclasses.dataclass(frozen=True)
class NBest:
    """N-best lists as arrays.

    Attributes:
        utterances: as they were read.
        scores: float64 [U, N], of the recogniser; -inf where an utterance has fewer hypotheses.
        errors: int64 [U, N] of words; 0 there.
        words: int64 [U], of the references.
    """

    utterances: Sequence[Utterance]
    scores: np.ndarray
    errors: np.ndarray
    words: np.ndarray

    @classmethod
    def of(cls, utterances: Sequence[Utterance]) -> NBest:
        """Counts the errors of all hypotheses."""
        errors = [count_errors(u.reference, u.hypotheses) for u in utterances]
        return cls(
            utterances,
            _padded([u.scores for u in utterances], -np.inf, np.float64),
            _padded(errors, 0, np.int64),
            count_words([u.reference for u in utterances]),
        )

    def texts(self) -> list[str]:
        """All hypotheses, in the order of the file."""
        return [text for utterance in self.utterances for text in utterance.hypotheses]

    def language_scores(self, values: Sequence[float]) -> np.ndarray:
        """Scores of `texts()` by a language model, as float64 [U, N]; NaN where it has none.

        A sum over no words would be 0, the highest log-probability. So where the recogniser's
        choice has no score it stays: all scores of the utterance are 0. Elsewhere a hypothesis
        without a score has -inf and is never chosen.
        """
        ends = np.cumsum([len(u.hypotheses) for u in self.utterances])[:-1]
        scores = _padded(np.split(np.asarray(values, np.float64), ends), 0.0, np.float64)
        silent = np.isnan(scores)
        scores[silent] = -np.inf
        scores[silent[np.arange(len(silent)), self.first_best()]] = 0.0
        return scores

    def first_best(self) -> np.ndarray:
        """The recogniser's choice, int64 [U]; of equal scores the first."""
        return np.argmax(self.scores, axis=1)

    def oracle(self) -> np.ndarray:
        """The hypotheses with the fewest errors, int64 [U]; of equal ones the first."""
        errors = np.where(np.isneginf(self.scores), np.iinfo(np.int64).max, self.errors)
        return np.argmin(errors, axis=1)

    def errors_of(self, choice: np.ndarray) -> np.ndarray:
        """Errors of one hypothesis of each utterance, [..., U] as the choice."""
        return self.errors[np.arange(len(self.errors)), choice]

    def rates(self, choice: np.ndarray) -> np.ndarray:
        """Word error rates of choices [..., U] in percent, float64 [...]."""
        return 100 * self.errors_of(choice).sum(axis=-1) / self.words.sum()

    def summary(self, choice: np.ndarray) -> dict[str, float | int]:
        """Rate in percent, number and kinds of errors of a choice [U]."""
        chosen = [u.hypotheses[i] for u, i in zip(self.utterances, choice)]
        kinds = kinds_of_errors([u.reference for u in self.utterances], chosen)
        errors = int(self.errors_of(choice).sum())
        return {"wer": float(self.rates(choice)), "errors": errors, **kinds}


def parse_lambdas(text: str) -> np.ndarray:
    """A grid, as START:STOP:STEP with both ends or as a list A,B,...; sorted, float64 [L].

    Raises:
        InputError: it is neither, or a weight is negative or not finite.
    """
    expected = (
        "--lambdas should be START:STOP:STEP, such as 0:1:0.05, or weights of at least 0 separated"
        f" by commas. Received: {text!r}"
    )
    try:
        values = [float(part) for part in text.split(":" if ":" in text else ",")]
    except ValueError as error:
        raise InputError(expected) from error
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise InputError(expected)
    if ":" in text:
        if len(values) != 3 or values[2] == 0 or values[1] < values[0]:
            raise InputError(expected)
        start, stop, step = values
        steps = (stop - start) / step
        if steps >= _MOST_LAMBDAS:
            raise InputError(f"--lambdas should be at most {_MOST_LAMBDAS:,}. Received: {text!r}")
        # Rounded, so that 3 times 0.05 is 0.15.
        values = [round(start + i * step, 12) for i in range(math.floor(steps + 1e-9) + 1)]
    return np.unique(values)


def choices(lists: NBest, scores: np.ndarray, lambdas: np.ndarray) -> np.ndarray:
    """The hypotheses of the highest score + lambda * `scores`; of equal ones the first.

    Where all sums of an utterance overflow to -inf, the recogniser's choice stays.

    Args:
        scores: float64 [U, N], of `language_scores`.
        lambdas: float64 [L].

    Returns:
        int64 [L, U]
    """
    chosen = []
    with np.errstate(over="ignore"):
        for weight in lambdas:
            total = lists.scores + (weight * scores if weight else 0)  # 0 * inf would be NaN
            none = np.isneginf(total.max(axis=1))  # all are beyond what float64 holds
            chosen.append(np.where(none, lists.first_best(), np.argmax(total, axis=1)))
    return np.stack(chosen)


def improvement(
    lists: NBest, choice: np.ndarray, resamples: int, seed: int
) -> dict[str, float | list[float]]:
    """How much lower the rate of a choice is than the recogniser's, in points of percent.

    The interval is a paired bootstrap over utterances (percentiles): each resample draws as many
    utterances as there are, with replacement, and both rates are of the same.

    Returns:
        "points", and "interval" of 95 %: the ends of it.
    """
    from scipy import stats  # it takes a second

    fewer = lists.errors_of(lists.first_best()) - lists.errors_of(choice)

    def points(fewer: np.ndarray, words: np.ndarray, axis: int) -> np.ndarray:
        return 100 * np.sum(fewer, axis) / np.maximum(np.sum(words, axis), 1)

    value = float(points(fewer, lists.words, axis=0))
    if len(fewer) == 1 or not fewer.any():  # every resample is the same
        return {"points": value, "interval": [value, value]}
    found = stats.bootstrap(
        (fewer, lists.words),
        points,
        paired=True,
        vectorized=True,
        n_resamples=resamples,
        batch=_BATCH,
        confidence_level=_CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return {"points": value, "interval": [float(end) for end in found.confidence_interval]}


def _padded(rows: Sequence[Sequence[float]], filler: float, dtype: type) -> np.ndarray:
    """Rows of different lengths as an array [U, N]."""
    widest = max(map(len, rows))
    array = np.full([len(rows), widest], filler, dtype)
    for row, values in zip(array, rows):
        row[: len(values)] = values
    return array

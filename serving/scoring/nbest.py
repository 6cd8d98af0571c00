"""N-best lists of a speech recogniser: reading, rescoring by log scores, word error rates."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from convbert.common.errors import InputError, warn
from convbert.common.files import is_unicode, read_json
from convbert.common.plugins import lazily
from convbert.finetune.readers.tables import read_jsonl

LAMBDAS = tuple(n / 20 for n in range(21))  # weights to choose from
Scores = Callable[[list[str]], Mapping[str, float]]  # NaN for texts without pieces


@dataclasses.dataclass(frozen=True)
class NBest:
    """N-best lists as arrays of U utterances with at most N hypotheses each."""

    hypotheses: Sequence[Sequence[str]]  # texts of each utterance
    scores: np.ndarray  # float64 [U, N], the recogniser's; -inf for missing hypotheses
    errors: np.ndarray  # int64 [U, N], substitutions, deletions and insertions of words
    words: np.ndarray  # int64 [U], number of words in the references

    @classmethod
    def of(
        cls,
        references: Sequence[str],
        hypotheses: Sequence[Sequence[str]],
        scores: Sequence[Sequence[float]],
    ) -> NBest:
        """Counts the errors of all hypotheses, given the U transcripts."""
        pairs = zip(references, hypotheses)
        distance = Levenshtein.distance
        errors = [[distance(said.split(), text.split()) for text in texts] for said, texts in pairs]
        words = np.array([len(reference.split()) for reference in references], np.int64)
        padded = _padded(scores, -np.inf), _padded(errors, np.iinfo(np.int64).max)
        return cls(hypotheses, *padded, words)

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
    return np.array([*itertools.zip_longest(*rows, fillvalue=filler)], type(filler)).T


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
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max


def given_scores(path: str, texts: list[str]) -> Mapping[str, float]:
    """Reads the log scores of all texts from JSON lines; NaN if `num_pieces` is 0."""
    found = {}
    names = {name: name for name in ("text", "score", "num_pieces")}
    for where, row in read_jsonl(path, names, optional=("num_pieces",)):
        if not isinstance(row["text"], str) or not _is_number(row["score"]):
            raise InputError(f"{where}: should have a `text` and a finite `score`")
        found[row["text"]] = row["score"] if row.get("num_pieces", 1) else math.nan
    if missing := [text for text in texts if text not in found]:
        none = f"none for {len(missing)}, the first {missing[0]!r}"
        raise InputError(f"{path}: should have a score for each hypothesis. Received: {none}")
    return found


def model_scores(model_dir: str, texts: list[str], **options: Any) -> Mapping[str, float]:
    """Returns a model's log scores; `options` are those of `convbert.load`."""
    scores = lazily("convbert.serving.model:load")(model_dir, **options).score(texts)
    if cut := int(scores.truncated.sum()):
        warn(f"{cut} hypotheses are longer than the model's sequences and scored in part")
    values = np.where(scores.num_pieces > 0, scores.score.astype(float), np.nan)
    return dict(zip(texts, values.tolist()))


def rescored(
    dev: NBest, test: NBest, score: Scores, weights: Sequence[float] = LAMBDAS
) -> dict[str, Any]:
    """Chooses lambda of ascending `weights` on `dev`; returns error rates on both, in per cent."""
    texts = {text for each in (dev, test) for of in each.hypotheses for text in of}
    asked = sorted((text for text in texts if text.split()), key=lambda text: (len(text), text))
    known = score(asked) if asked else {}
    found = {text: known[text] if text.split() else math.nan for text in texts}
    rates = [dev.rate(dev.choice(found, weight)) for weight in weights]
    weight = weights[int(np.argmin(rates))]  # the smallest one of ties
    if weight == weights[-1] > 0:
        warn(f"the best lambda, {weight:g}, is the largest of --lambdas")
    chosen = test.choice(found, weight)
    return {
        "lambda": weight,
        "dev": dict(zip(map("{:g}".format, weights), rates)),
        "test": {
            "1-best": test.rate(test.first_best()),
            "rescored": test.rate(chosen),
            "oracle": test.rate(test.oracle()),
        },
        "better_by": test.rate(test.first_best()) - test.rate(chosen),
    }


def rescoring_scores(model_dir: str, data_dir: str, dev: str, test: str) -> dict[str, float]:
    """Returns error rates with a model on n-best lists of two files in a folder; see `rescored`."""
    lists = [read_lists(os.path.join(data_dir, name)) for name in (dev, test)]
    report = rescored(lists[0], lists[1], functools.partial(model_scores, model_dir))
    return {"lambda": report["lambda"], "better_by": report["better_by"], **report["test"]}

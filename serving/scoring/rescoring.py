"""Rescoring of n-best lists with the log scores of a language model; see rescore.py."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from convbert.common.errors import InputError, warn
from convbert.serving.model import load
from convbert.serving.scoring.nbest import LAMBDAS, NBest, read_lists, read_scores

Scores = Callable[[list[str]], Mapping[str, float]]  # NaN for texts without pieces


def given_scores(path: str, texts: list[str]) -> Mapping[str, float]:
    """Returns the log scores of a file for all texts."""
    found = read_scores(path)
    if missing := [text for text in texts if text not in found]:
        raise InputError(
            f"{path}: should have a score for each hypothesis. Received: none for"
            f" {len(missing)}, the first {missing[0]!r}"
        )
    return found


def model_scores(model_dir: str, texts: list[str], **options: Any) -> Mapping[str, float]:
    """Returns a model's log scores; `options` are those of `convbert.load`."""
    scores = load(model_dir, **options).score(texts)
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

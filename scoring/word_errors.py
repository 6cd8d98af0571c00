"""Word errors of hypotheses, counted by RapidFuzz.

Words are what whitespace separates; letters count as they are, so references and hypotheses should
be of one case. The word error rate of a set is the sum of all errors over the sum of all words of
the references, not a mean of rates.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein

KINDS = {"replace": "substitutions", "delete": "deletions", "insert": "insertions"}


def count_words(texts: Sequence[str]) -> np.ndarray:
    """Number of words of each text, int64 [N]."""
    return np.array([len(text.split()) for text in texts], np.int64)


def count_errors(reference: str, hypotheses: Sequence[str]) -> list[int]:
    """The fewest substitutions, deletions and insertions of words that make a reference of each."""
    words = reference.split()
    return [Levenshtein.distance(words, hypothesis.split()) for hypothesis in hypotheses]


def kinds_of_errors(references: Sequence[str], hypotheses: Sequence[str]) -> dict[str, int]:
    """How many of the errors of a set are substitutions, deletions and insertions.

    Their sum is that of `count_errors`. Where several alignments have equally many errors,
    RapidFuzz chooses one.

    Args:
        references: what was said.
        hypotheses: one for each reference.
    """
    counts = collections.Counter(dict.fromkeys(KINDS.values(), 0))
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        # From the reference to the hypothesis: what is deleted there was said.
        edits = Levenshtein.editops(reference.split(), hypothesis.split())
        counts.update(KINDS[edit.tag] for edit in edits)
    return dict(counts)

"""Baselines of multiple choice that compare words: what needs no learning at all."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Sequence

import numpy as np


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower().replace("_", " "))


def share_of_words(context: str, question: str, options: Sequence[str]) -> list[float]:
    """The share of each option's words that occur in the context."""
    known, found = set(words_of(context)), map(words_of, options)
    return [sum(word in known for word in words) / max(1, len(words)) for words in found]


def sliding_window(context: str, question: str, options: Sequence[str]) -> list[float]:
    """The best window of the context, as long as question and option have different words.

    A window counts those of its words that are in question or option, the rarer ones of the context
    more: log(1 + 1 / count).

    Source: algorithm 1 of Richardson et al., "MCTest", EMNLP 2013.
    """
    passage, asked = words_of(context), set(words_of(question))
    values = {word: math.log1p(1 / count) for word, count in collections.Counter(passage).items()}
    scores = []
    for option in options:
        wanted = asked.union(words_of(option))
        sums = np.cumsum([0.0, *(values[word] * (word in wanted) for word in passage)])
        size = min(len(wanted), len(passage))
        scores.append(float(np.max(sums[size:] - sums[: len(sums) - size])))
    return scores


RULES = {"share of words": share_of_words, "sliding window": sliding_window}


def best_options(rule: str, examples: Sequence) -> list[int]:
    """The place of the option of highest score for each example, the first of equals."""
    scores = (RULES[rule](item.context, item.question, item.options) for item in examples)
    return [int(np.argmax(found)) for found in scores]

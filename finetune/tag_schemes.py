"""Schemes of tags for spans: what may follow what in BIO and in BIOES."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from errors import InputError

if TYPE_CHECKING:
    from finetune.kinds.tagging import TaggedExample
    from finetune.task import Task

# Of each scheme, the prefixes after which a span may go on, those that need one that goes on, and
# whether a span that may go on must.
_SCHEMES = {"bio": ("BI", "I", False), "bioes": ("BI", "IE", True)}
SCHEMES = tuple(_SCHEMES)


class Forbidden(NamedTuple):
    """What no sentence may have: bool start [L], transitions [L, L] from row to column, end [L]."""

    start: np.ndarray
    transitions: np.ndarray
    end: np.ndarray


def forbidden(labels: Sequence[str], scheme: str) -> Forbidden:
    """What a scheme, of `SCHEMES`, forbids between labels such as B-PER and O."""
    opens, continues, must = _SCHEMES[scheme]

    def wrong(before: str, after: str) -> bool:
        """Whether a tag may not follow another; outside of the sentence there are "O"s."""
        is_open, goes_on = before[0] in opens and before[1:2] == "-", after[0] in continues
        goes_on &= after[1:2] == "-"
        if is_open and goes_on:
            return before[2:] != after[2:]
        return goes_on or (is_open and must)

    return Forbidden(
        np.array([wrong("O", label) for label in labels]),
        np.array([[wrong(before, after) for after in labels] for before in labels]),
        np.array([wrong(label, "O") for label in labels]),
    )


def check_scheme(task: Task, examples: Sequence[TaggedExample], scheme: str) -> None:
    """Raises InputError for the first sentence whose tags are not of the scheme."""
    rules = forbidden(task.labels, scheme)
    for example in examples:
        for before, after in itertools.pairwise((None, *example.tags, None)):
            if before is None:
                wrong, place = rules.start[after], "at the beginning"
            elif after is None:
                wrong, place = rules.end[before], "at the end"
            else:
                wrong, place = rules.transitions[before, after], f"after {task.labels[before]}"
            if wrong:
                tag = task.labels[before if after is None else after]
                raise InputError(
                    f"{task.name}, {task.train} sentence {example.id}: the tags should be of the "
                    f'scheme "tag_constraints": "{scheme}". Received: {tag} {place}, in '
                    f"{' '.join(example.words)!r:.80}"
                )

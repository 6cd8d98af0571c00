"""What a run answers to the examples of a split, and whether it says the same to all."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from finetune.task import Task

_RARE = 50


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What a run answers to the examples of a split."""

    task: Task  # with its labels
    examples: Sequence
    answers: Sequence  # one per example, as `Kind.answers` gives
    # What the network says, one item per sequence; {} where it is not at hand.
    outputs: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.examples) != len(self.answers):
            raise ValueError(
                f"there should be one answer per example. Received: {len(self.answers)} answers "
                f"to {len(self.examples)} examples"
            )


def constant_answer(answers: Sequence, gold: Sequence) -> str | None:
    """Returns a warning if nearly all answers are the same, else None.

    All but all: fewer than one in `_RARE` of the gold answers that differ are answered otherwise.

    Args:
        answers: one for each example, as files have them.
        gold: the right ones, for as many examples.
    """
    if len(answers) < 2:
        return None
    (answer, same), n = collections.Counter(map(repr, answers)).most_common(1)[0], len(answers)
    if same < n and _RARE * (n - same) > sum(repr(right) != answer for right in gold):
        return None
    return f"{'every prediction' if same == n else f'{same:,} of {n:,} predictions'} is {answer}"

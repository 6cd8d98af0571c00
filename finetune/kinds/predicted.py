"""A run's predictions for a split, and the file of predictions."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from convbert.common.files import write_text

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task

_RARE = 50


@dataclasses.dataclass(frozen=True)
class Predicted:
    """A run's answers to the examples of a split."""

    task: Task  # with its labels
    examples: Sequence
    answers: Sequence  # one per example, as `Kind.answers` gives
    # The network's outputs, one item per sequence; {} if not available.
    outputs: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.examples) != len(self.answers):
            raise ValueError(
                f"there should be one answer per example. Received: {len(self.answers)} answers "
                f"to {len(self.examples)} examples"
            )


def constant_answer(answers: Sequence, gold: Sequence) -> str | None:
    """Returns a warning if nearly all answers are the same, else None.

    Nearly all: other answers are fewer than one in `_RARE` of the other gold answers, if any.
    """
    if len(answers) < 2:
        return None
    (answer, same), n = collections.Counter(map(repr, answers)).most_common(1)[0], len(answers)
    others = sum(repr(right) != answer for right in gold)
    if not others or (same < n and _RARE * (n - same) > others):
        return None
    return f"{'every prediction' if same == n else f'{same:,} of {n:,} predictions'} is {answer}"


def write_predictions(folder: str, split: str, predicted: Predicted) -> str:
    """Writes `FOLDER/SPLIT.jsonl` and the kind's further files; returns the path.

    Each line has an example, {"id", "prediction", ...}, and "label" if known, in the form of
    `Kind.row` and `Kind.gold`.
    """
    task, kind = predicted.task, predicted.task.plugin
    lines = []
    for number, example in enumerate(predicted.examples):
        row = {"id": example.id, **kind.row(predicted, number)}
        if (gold := kind.gold(task, example)) is not None:
            row["label"] = gold
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    path = os.path.join(folder, f"{split}.jsonl")
    write_text(path, "".join(lines))
    kind.write_files(predicted, folder, split)
    return path

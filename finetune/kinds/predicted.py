"""A run's predictions for a split, and its lead over baselines that learn nothing.

A baseline (`Kind.baselines`) ignores its input: the most frequent label of the split itself, the
mean of its scores, no answer to any question of SQuAD 2.0, or a rule; the best counts.
A constant prediction correlates by 0 on average, so an undefined baseline counts as 0.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common.files import parse_json, write_text
from finetune.readers.lines import read_lines

if TYPE_CHECKING:
    from finetune.declaration import Task

_RARE = 50
INTERVAL = (2.5, 97.5)  # percentiles of scores over draws
# Draws for a lead: this many, or so few that they have about so many examples in all.
_DRAWS, _FEWEST, _EXAMPLES = 200, 25, 100_000


@dataclasses.dataclass(frozen=True)
class Predicted:
    """A run's answers to the examples of a split."""

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
    """
    if len(answers) < 2:
        return None
    (answer, same), n = collections.Counter(map(repr, answers)).most_common(1)[0], len(answers)
    if same < n and _RARE * (n - same) > sum(repr(right) != answer for right in gold):
        return None
    return f"{'every prediction' if same == n else f'{same:,} of {n:,} predictions'} is {answer}"


def baseline(predicted: Predicted) -> dict[str, Any] | None:
    """Returns the best baseline of a labelled split, as `result.json` records it.

    Returns:
        {"name": its name, "answer": the one answer to all, "scores": {metric: score or None}} of
        highest main metric, with "lead", the 95 % bootstrap interval [low, high] of how much higher
        that of `predicted` is, and the "others", if any. None if the task has no baseline.
    """
    task, found = predicted.task, []
    for name, answer, answers in task.plugin.baselines(task, predicted.examples):
        given = Predicted(task, predicted.examples, answers)
        scores = task.plugin.score(given)
        scores = {metric: scores[metric] for metric in task.metrics}
        found.append(({"name": name, "answer": answer, "scores": scores}, given))
    if not found:
        return None
    found.sort(key=lambda item: -(item[0]["scores"][task.metrics[0]] or 0.0))
    (best, given), *others = found
    best["lead"] = _lead(predicted, given)
    return best | {"others": [other for other, _ in others]} if others else best


def _lead(predicted: Predicted, other: Predicted) -> list[float]:
    """The interval of the difference of two answers' main metrics on the same examples."""
    metric = predicted.task.metrics[0]
    task = dataclasses.replace(predicted.task, metrics=(metric,))
    count = min(_DRAWS, max(_FEWEST, _EXAMPLES // len(predicted.examples)))
    scores = []
    for answers in (predicted, other):
        drawn = draws(dataclasses.replace(answers, task=task), count)
        scores.append([task.plugin.score(part)[metric] or 0.0 for part in drawn])
    return np.percentile(np.subtract(scores[0], scores[1]), INTERVAL).tolist()


def draws(predicted: Predicted, count: int) -> Iterator[Predicted]:
    """Yields as many examples, drawn with replacement, with new ids; always the same ones."""
    draw, n = np.random.default_rng(0), len(predicted.examples)
    for _ in range(count):
        numbers = draw.integers(0, n, n)
        drawn = enumerate(predicted.examples[i] for i in numbers)
        yield dataclasses.replace(
            predicted,
            examples=[dataclasses.replace(example, id=str(place)) for place, example in drawn],
            answers=[predicted.answers[i] for i in numbers],
            outputs={  # those that have a value for each example
                name: value[numbers]
                for name, value in predicted.outputs.items()
                if np.shape(value)[:1] == (n,)
            },
        )


def write_predictions(folder: str, split: str, predicted: Predicted) -> str:
    """Writes `FOLDER/SPLIT.jsonl`, whose path it returns, and what else the kind of task writes.

    Each line has an example, {"id", "prediction", ...}, and "label" where it is known, in the form
    of `Kind.row` and `Kind.gold`.
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


def read_predictions(path: str) -> list[dict[str, Any]]:
    """The objects that `write_predictions` wrote; InputError for a file that is damaged."""
    return [parse_json(line, where) for where, line in read_lines(path) if line]

"""What the best answer that ignores its input scores, and by how much a run is above it.

Each kind of task says what that answer is (`Kind.baselines`): the most frequent label of the split
itself, the mean of its scores, no answer to any question of SQuAD 2.0, or a rule; the best counts.
What predicts nothing correlates by 0 on average, so an undefined baseline counts as 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from finetune.kinds.predicted import Predicted

INTERVAL = (2.5, 97.5)  # percentiles of scores over draws
# Draws for a lead: this many, or so few that they have about so many examples in all.
_DRAWS, _FEWEST, _EXAMPLES = 200, 25, 100_000


def baseline(predicted: Predicted) -> dict[str, Any] | None:
    """What goes into `result.json`: the best answers to labelled examples without learning.

    Returns:
        {"name": what answers, "answer": the one answer to all, "scores": {metric: score or None}}
        of highest main metric, with "lead", the 95 % bootstrap interval [low, high] of how much
        higher that of `predicted` is, and the "others", if any. None where the task has none.
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
    return np.percentile(np.subtract(*scores), INTERVAL).tolist()


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

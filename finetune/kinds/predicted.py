"""What a run answers to the examples of a split, and how it is said."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from finetune.hparams import FinetuningHParams
    from finetune.task import Task

_RARE = 50


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What a run answers to the examples of a split."""

    task: Task  # with its labels
    examples: Sequence
    answers: Sequence  # one per example, as `Kind.answers` gives
    hparams: FinetuningHParams
    # What the network says, one item per sequence; {} where it is not at hand.
    outputs: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.examples) != len(self.answers):
            raise ValueError(
                f"there should be one answer per example. Received: {len(self.answers)} answers "
                f"to {len(self.examples)} examples"
            )


def quoted(*texts: str | None) -> str:
    """Texts as Markdown quotations, a paragraph each."""
    return "".join("\n\n> " + " ".join(text.split()) for text in texts if text)


def confidence(shares: np.ndarray | None, answer: int) -> tuple[float, str]:
    """How large an error an answer is, and its words: its probability; 0 where none is known."""
    if shares is None:
        return 0.0, ""
    share = float(shares[answer])
    return share, f" with probability {share:.3f}"


def first_most_frequent(counts: Mapping[int, int]) -> int:
    """The most frequent label; of equally frequent ones, the first of the task's labels."""
    return max(sorted(counts), key=lambda label: counts[label], default=0)


def constant_label(predicted: Predicted) -> str | None:
    """See `constant_answer`: of examples with one `label`, which is an index."""
    gold, names = [example.label for example in predicted.examples], predicted.task.labels
    return constant_answer(predicted.answers, gold, lambda label: repr(names[label]))


def constant_answer(
    answers: Sequence, gold: Sequence, name: Callable[[Any], str] = repr
) -> str | None:
    """Returns a warning if nearly all answers are the same, else None.

    All but all: fewer than one in `_RARE` of the gold answers that differ are answered otherwise.

    Args:
        answers: one for each example, of any type that can be hashed.
        gold: the right ones, for as many examples.
        name: what an answer is called.
    """
    if len(answers) < 2:
        return None
    (answer, same), n = collections.Counter(answers).most_common(1)[0], len(answers)
    if same < n and _RARE * (n - same) > sum(right != answer for right in gold):
        return None
    return (
        f"{'every prediction' if same == n else f'{same:,} of {n:,} predictions'} is {name(answer)}"
    )

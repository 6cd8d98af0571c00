"""What a model answers to several texts, as columns of arrays and as rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd


class Answers(Sequence):
    """An answer for each text, in their order.

    `answers.label` is a column: an array with a value for each text, or a list where the values
    differ in length. `answers[0]` is the first text's answer, a frozen dataclass of the same
    fields.

    Args:
        columns: by name, of equal length.
        labels: of the task; the names along the second axis of columns in `of_labels`.
        of_labels: names of columns with a value for each label.
    """

    def __init__(
        self,
        columns: dict[str, np.ndarray | list],
        labels: Sequence[str] = (),
        of_labels: Sequence[str] = (),
    ):
        self.columns = columns
        self._labels, self._of_labels = labels, of_labels
        self._row = dataclasses.make_dataclass("Answer", list(columns), frozen=True, eq=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, place: int | slice) -> Any:
        found = {name: column[place] for name, column in self.columns.items()}
        if isinstance(place, slice):
            return Answers(found, self._labels, self._of_labels)
        return self._row(**found)

    def __getattr__(self, name: str) -> np.ndarray | list:
        if name != "columns" and name in self.columns:
            return self.columns[name]
        raise AttributeError(f"these answers have {', '.join(self.columns)}, and no {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.columns]

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} answers: {', '.join(self.columns)}>"

    def to_pandas(self) -> pd.DataFrame:
        """A row for each text; of `probabilities` and the like a column for each label."""
        found: dict[str, Any] = {}
        for name, column in self.columns.items():
            if name in self._of_labels:
                found |= {f"{name}.{label}": column[:, i] for i, label in enumerate(self._labels)}
            else:
                found[name] = list(column)
        return pd.DataFrame(found)

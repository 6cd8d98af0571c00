"""A model's answers to several texts, as columns of arrays and as rows."""

from __future__ import annotations

import operator
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd


class Answer(types.SimpleNamespace):
    """The answer to one text; its attributes are the signature's outputs."""


class Answers(Sequence):
    """Answers to texts, in order.

    `answers.label` is a column: an array with a value per text, or a list if the values differ in
    length. `answers[0]` is the first text's `Answer`, with the same attributes. `of_labels` names
    the columns with a value for each of the task's `labels`.
    """

    def __init__(
        self,
        columns: dict[str, np.ndarray | list],
        labels: Sequence[str] = (),
        of_labels: Sequence[str] = (),
        index: pd.Index | None = None,
    ):
        self.columns = columns
        self._labels, self._of_labels, self._index = labels, of_labels, index

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            index = None if self._index is None else self._index[place]
            columns = {name: column[place] for name, column in self.columns.items()}
            return Answers(columns, self._labels, self._of_labels, index)
        place = operator.index(place)
        return Answer(**{name: column[place] for name, column in self.columns.items()})

    def __getattr__(self, name: str) -> np.ndarray | list:
        if name.startswith("__") or "columns" not in vars(self):  # e.g. while being copied
            raise AttributeError(name)
        if name in self.columns:
            return self.columns[name]
        raise AttributeError(f"answers have {', '.join(self.columns)}, but not {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.columns]

    def __repr__(self) -> str:
        return f"<{len(self)} answers: {', '.join(self.columns)}>"

    def to_pandas(self) -> pd.DataFrame:
        """Returns a row per text; outputs such as `probabilities` have a column per label."""
        found: dict[str, Any] = {}
        for name, column in self.columns.items():
            if name in self._of_labels:
                values = np.asarray(column)
                found |= {f"{name}.{label}": values[:, i] for i, label in enumerate(self._labels)}
            else:
                found[name] = list(column)
        return pd.DataFrame(found, index=self._index)

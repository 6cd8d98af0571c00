"""A split as the network sees it: sequences of token ids of different length, end to end."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The n sequences of a split; an example has one, or several where it is too long for one.

    Attributes:
        row_splits: int64 [n + 1]; sequence i has the tokens `row_splits[i]:row_splits[i + 1]`.
        tokens: columns of one value per token, each [total]: `input_ids` and `segment_ids` int32;
            for tagging also `tags` int32 (where labelled) and `tag_weight` float32, 1 on the
            first piece of each word and 0 elsewhere. Padding of every column is 0.
        sequences: columns of one value per sequence, each [n, ...]: `example` int32, the index into
            the list of examples, never falling; for tagging `window` int32, which of its example's
            sequences it is, from 0; `label`, int32 (classification) or float32
            (regression, scaled to [0, 1] by the task's `label_range`); what a span task needs.
            Columns of labels are absent where the examples are unlabelled.
        truncated: how many examples were too long for one sequence, and so were cut or divided.
    """

    row_splits: np.ndarray
    tokens: dict[str, np.ndarray]
    sequences: dict[str, np.ndarray]
    truncated: int

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each sequence: int64 [n]."""
        return np.diff(self.row_splits)

    def __len__(self) -> int:
        return len(self.row_splits) - 1

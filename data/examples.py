"""Documents -> pre-training examples: where each example starts and where its segments end.

ELECTRA's rules (google-research/electra, build_pretraining_dataset.py, the version with the
two-segment fix), with two differences. What does not fit an example continues in the next one
instead of being thrown away. And once a line has gone to the second segment, so do all that follow;
there, a short one may still be put in front of it. So the examples of a document, end to end, are
the document.

The rules are applied to token counts alone; the ids are then gathered for thousands of examples at
once.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterator, Sequence

import numpy as np

SHORT_TARGET_PROBABILITY = 0.05
SINGLE_SEGMENT_PROBABILITY = 0.1
MIN_TARGET = 5
# [CLS] a [SEP] and [CLS] a [SEP] b [SEP]
ONE_SEGMENT_SPECIALS, TWO_SEGMENTS_SPECIALS = 2, 3


class ExamplePlanner:
    """Cuts documents into examples.

    Args:
        max_seq_length: S, at least MIN_TARGET.
        generator: the source of every choice. Only its `random()` is used, the one method whose
            stream Python promises to keep.
    """

    def __init__(self, max_seq_length: int, generator: random.Random) -> None:
        if max_seq_length < MIN_TARGET:
            raise ValueError(
                f"`max_seq_length` should be at least {MIN_TARGET}. Received: {max_seq_length}"
            )
        self._S = max_seq_length
        self._random = generator.random
        self._target = max_seq_length

    def plan(self, line_ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yields (start, first, second) of each example of one document.

        Args:
            line_ends: for each line of the document, the number of tokens up to its end.

        Yields:
            Position of the example's first token in the document, and the number of tokens in its
            two segments; `second` is 0 for an example of one segment.
        """
        start = 0
        while line_ends and start < line_ends[-1]:
            # Lines are added until their tokens, without the specials, reach the target.
            last = min(bisect.bisect_left(line_ends, start + self._target), len(line_ends) - 1)
            first, second = self._segments(line_ends, start, line_ends[last])
            yield start, first, second
            start += first + second
            self._target = self._next_target()

    def _segments(self, line_ends: Sequence[int], start: int, end: int) -> tuple[int, int]:
        """Sizes of the segments of an example made from the tokens [start, end)."""
        if self._random() < SINGLE_SEGMENT_PROBABILITY:
            boundary = end
        else:
            boundary = self._first_segment_end(line_ends, start)
        first = min(boundary - start, self._S - ONE_SEGMENT_SPECIALS)
        second = min(end - start - first, max(0, self._S - TWO_SEGMENTS_SPECIALS - first))
        return first, second

    def _first_segment_end(self, line_ends: Sequence[int], start: int) -> int:
        """The line end at which the first segment gives way to the second, before trimming."""
        half = (self._target - TWO_SEGMENTS_SPECIALS) // 2
        # The first line goes first whatever its length, then those that stay under half.
        line = bisect.bisect_right(line_ends, start)
        line = max(line, bisect.bisect_left(line_ends, start + half) - 1)
        if line + 1 < len(line_ends) and line_ends[line] - start < half and self._random() < 0.5:
            line += 1  # the line that crosses half
        return line_ends[line]

    def _next_target(self) -> int:
        if self._random() < SHORT_TARGET_PROBABILITY:
            return MIN_TARGET + int(self._random() * (self._S - MIN_TARGET + 1))
        return self._S


def assemble(
    tokens: np.ndarray,
    plans: np.ndarray,
    max_seq_length: int,
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gathers the tokens of many examples into padded arrays.

    Args:
        tokens: ids, int32 [number of tokens].
        plans: integers [N, 3]: start in `tokens`, size of the first and of the second segment.
        max_seq_length: S.
        cls_id, sep_id, pad_id: of [CLS], [SEP] and [PAD].

    Returns:
        input_ids int32 [N, S], input_mask uint8 [N, S], segment_ids uint8 [N, S], as
        [CLS] first [SEP] second [SEP], without the last two where there is no second segment.
    """
    start, first, second = (plans[:, i, None] for i in range(3))  # each [N, 1]
    column = np.arange(max_seq_length)[None]  # [1, S]
    size = first + ONE_SEGMENT_SPECIALS + second + (second > 0)  # [N, 1]
    in_second = column > first + 1  # [N, S]; position first + 1 holds the first [SEP]
    mask = column < size
    source = start + column - 1 - in_second
    input_ids = tokens[np.clip(source, 0, len(tokens) - 1)]
    input_ids[:, 0] = cls_id
    input_ids[column == first + 1] = sep_id
    input_ids[column == size - 1] = sep_id
    input_ids[~mask] = pad_id
    return input_ids, mask.astype(np.uint8), (in_second & mask).astype(np.uint8)

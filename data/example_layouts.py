"""How the text of a shard becomes examples; `data.build_options.LAYOUTS` has the names.

A layout takes the pieces of documents one after the other and gives arrays of examples. It counts,
for each split, what it made of them.
"""

from __future__ import annotations

import abc
import collections
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from data.examples import ExamplePlanner, assemble
from data.vocabulary import Vocabulary

if TYPE_CHECKING:
    from data.shards import ShardSettings

_ENCODE_EXAMPLES = 2048

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids, mask, segments [N, S]; see `assemble`


class Layout(abc.ABC):
    """The examples of one shard, of both splits.

    Attributes:
        counts: examples, tokens, tokens_kept, padding and more, per split.
    """

    def __init__(self, settings: ShardSettings, vocabulary: Vocabulary) -> None:
        self.settings, self.vocabulary = settings, vocabulary
        self.counts = {split: collections.Counter() for split in settings.splits}

    def begin_unit(self, number: int) -> None:  # noqa: B027
        """Called before the documents of each unit, with its index in the corpus."""

    @abc.abstractmethod
    def add(self, split: str, lines: list[str], ids: np.ndarray, line_ends: np.ndarray) -> None:
        """Takes a document.

        Args:
            split: the side it is on.
            lines: its text.
            ids: its pieces, int32 [number of pieces].
            line_ends: for each line, the number of pieces up to its end.
        """

    @abc.abstractmethod
    def arrays(self, split: str, order_key: list[int]) -> Iterator[Arrays]:
        """Yields the examples of a split, some thousands at a time; they are counted then.

        Args:
            split: which one.
            order_key: of the permutation of its examples, where the layout has one.
        """


class Segments(Layout):
    """ELECTRA's examples: one or two segments of a document; see `data.examples`."""

    def __init__(self, settings: ShardSettings, vocabulary: Vocabulary) -> None:
        super().__init__(settings, vocabulary)
        self._tokens: list[np.ndarray] = []
        self._num_tokens = 0
        self._plans: dict[str, list[tuple[int, int, int]]] = {s: [] for s in settings.splits}

    def begin_unit(self, number: int) -> None:
        """See `Layout`: the choices of a unit are its own."""
        generator = random.Random(f"examples {self.settings.seed} {number}")
        self._planner = ExamplePlanner(self.settings.max_seq_length, generator)

    def add(self, split: str, lines: list[str], ids: np.ndarray, line_ends: np.ndarray) -> None:
        self._plans[split].extend(
            (self._num_tokens + start, first, second)
            for start, first, second in self._planner.plan(line_ends.tolist())
        )
        self._tokens.append(ids)
        self._num_tokens += len(ids)
        self.counts[split].update(tokens=len(ids))

    def arrays(self, split: str, order_key: list[int]) -> Iterator[Arrays]:
        tokens = np.concatenate([np.zeros([0], np.int32), *self._tokens])
        plans = np.array(self._plans[split], np.int64).reshape(-1, 3)  # [N, 3]
        plans = plans[permutation(len(plans), order_key)]
        for i in range(0, len(plans), _ENCODE_EXAMPLES):
            chunk = plans[i : i + _ENCODE_EXAMPLES]
            ids = {name: getattr(self.vocabulary, name) for name in ("cls_id", "sep_id", "pad_id")}
            arrays = assemble(tokens, chunk, self.settings.max_seq_length, **ids)
            if self.vocabulary.cls_is_last:
                arrays = with_cls_last(*arrays)
            filled = int(arrays[1].sum(dtype=np.int64))
            specials = 2 * len(chunk) + int((chunk[:, 2] > 0).sum())
            self.counts[split].update(
                examples=len(chunk),
                tokens_kept=filled - specials,
                padding=arrays[1].size - filled,
            )
            yield arrays


class Contiguous(Layout):
    """Blocks of a stream: the documents of a split, each with a separator behind it.

    The separator is [SEP], or the `<eos>` of words, and stands behind each line instead where
    `settings.separated_lines` says so. Every token of the stream is in one block, but that blocks
    begin with a token more: with [CLS], or where the vocabulary has none, with the last token of
    the block before (the first with `<eos>`). So a causal language model predicts each token once.
    Blocks are full but for the last one of a split, and do not end with a separator of their own.
    With SentencePiece, <cls> is their last token instead of the first.
    Training's are permuted, those that are held out keep the order of the text.
    """

    def __init__(self, settings: ShardSettings, vocabulary: Vocabulary) -> None:
        super().__init__(settings, vocabulary)
        self._streams: dict[str, list[np.ndarray]] = {split: [] for split in settings.splits}

    def add(self, split: str, lines: list[str], ids: np.ndarray, line_ends: np.ndarray) -> None:
        part = with_separators(ids, line_ends, self.vocabulary, self.settings.separated_lines)
        self._streams[split].append(part)
        separators = len(part) - len(ids)
        words = sum(len(line.split()) for line in lines)
        self.counts[split].update(tokens=len(part), words=words + separators)

    def arrays(self, split: str, order_key: list[int]) -> Iterator[Arrays]:
        begin = np.array([self.vocabulary.cls_id], np.int32)
        stream = np.concatenate([begin, *self._streams[split]])
        S, last = self.settings.max_seq_length, len(stream) - 1
        starts = np.arange(0, last, S - 1)  # [N]
        if split == "train":
            starts = self._training_order(starts, last, order_key)
        for i in range(0, len(starts), _ENCODE_EXAMPLES):
            source = starts[i : i + _ENCODE_EXAMPLES, None] + np.arange(S)  # [N, S]
            mask = source <= last
            ids = np.where(mask, stream[np.minimum(source, last)], self.vocabulary.pad_id)
            if not begins_with_last_token(self.vocabulary):
                ids[:, 0] = self.vocabulary.cls_id
            filled = int(mask.sum(dtype=np.int64))
            self.counts[split].update(
                examples=len(ids), tokens_kept=filled - len(ids), padding=mask.size - filled
            )
            arrays = ids, mask.astype(np.uint8), np.zeros(mask.shape, np.uint8)
            yield with_cls_last(*arrays) if self.vocabulary.cls_is_last else arrays

    def _training_order(self, starts: np.ndarray, last: int, order_key: list[int]) -> np.ndarray:
        return starts[permutation(len(starts), order_key)]


class Ordered(Contiguous):
    """Blocks of a stream whose training examples keep the order of the text, too.

    They are for a memory of the text before, which must not hold padding: the last block of a
    shard, which is not full, is left out of training.
    """

    def _training_order(self, starts: np.ndarray, last: int, order_key: list[int]) -> np.ndarray:
        del order_key
        return starts[starts + self.settings.max_seq_length - 1 <= last]


def begins_with_last_token(vocabulary: Vocabulary) -> bool:
    """Whether a block of a stream begins with the last token of the block before, not with [CLS].

    So it is where no token is for beginnings alone, as of words.
    """
    return vocabulary.cls_id == vocabulary.sep_id


def with_cls_last(ids: np.ndarray, mask: np.ndarray, segments: np.ndarray) -> Arrays:
    """Examples [N, S] that begin with <cls>, with it behind their last token and as segment 2.

    These are XLNet's: A <sep> B <sep> <cls>, see `data.tokenization.Frame`.
    """
    last = np.arange(len(ids)), mask.sum(1, dtype=np.int64) - 1
    cls_ids = ids[:, 0]
    # The last column stays: padding, or where there is none, the place of <cls>.
    ids, segments = (np.concatenate([x[:, 1:], x[:, -1:]], 1) for x in (ids, segments))
    ids[last], segments[last] = cls_ids, 2
    return ids, mask, segments


def with_separators(
    ids: np.ndarray, line_ends: np.ndarray, vocabulary: Vocabulary, separated_lines: bool
) -> np.ndarray:
    """The pieces of a document with a separator behind it, or behind each line; int32 [n].

    Args:
        ids: its pieces, int32 [number of pieces].
        line_ends: for each line, the number of pieces up to its end.
        vocabulary: with the separator.
        separated_lines: whether lines have separators.
    """
    return np.insert(ids, line_ends if separated_lines else [len(ids)], vocabulary.sep_id)


def permutation(size: int, key: list[int]) -> np.ndarray:
    """A permutation of range(size) that depends on `key`, two integers, alone."""
    # Raw Philox numbers are the same in all versions of NumPy; Generator's methods need not be.
    return np.argsort(np.random.Philox(key=key).random_raw(size), kind="stable")


CLASSES: dict[str, type[Layout]] = {
    "segments": Segments,
    "contiguous": Contiguous,
    "ordered": Ordered,
}

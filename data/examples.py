"""Documents -> pre-training examples, in one of the layouts of `data.build_options.LAYOUTS`.

`ExamplePlanner` follows ELECTRA's rules (google-research/electra, build_pretraining_dataset.py, the
version with the two-segment fix), with two differences: text that does not fit into an example
continues in the next one, and lines keep their order. So the concatenated examples of a document
are the document.

The rules only use token counts; the ids are then gathered for thousands of examples at once.
"""

from __future__ import annotations

import abc
import bisect
import collections
import random
from collections.abc import Iterator, Sequence

import numpy as np

from convbert.data import build_options
from convbert.data.build_options import PACKING_GAP, BuildSettings
from convbert.data.readers.base import Document
from convbert.data.tokenization import Tokenizer
from convbert.data.vocabulary import Vocabulary

SHORT_TARGET_PROBABILITY = 0.05
SINGLE_SEGMENT_PROBABILITY = 0.1
# [CLS] a [SEP] and [CLS] a [SEP] b [SEP]
ONE_SEGMENT_SPECIALS, TWO_SEGMENTS_SPECIALS = 2, 3
_ENCODE_EXAMPLES = 2048

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids, mask, segments [N, S]; see `assemble`


class Layout(abc.ABC):
    """The examples of one shard, for both splits, and the `counts` of each split."""

    def __init__(self, settings: BuildSettings, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self.vocabulary = tokenizer.vocabulary
        self.counts: dict[str, collections.Counter]
        self.counts = {split: collections.Counter() for split in settings.splits}

    def begin_unit(self, number: int) -> None:  # noqa: B027
        """Hook called before the documents of each unit, with the unit's index in the corpus."""

    def add(self, parts: Sequence[tuple[str, Document]]) -> None:
        """Adds documents, each with its split; tokenizes them in one call."""
        tokenized = self.tokenizer.tokenize_documents([document.lines for _, document in parts])
        for (split, document), (ids, line_ends) in zip(parts, tokenized):
            self._add(split, document, ids, line_ends)
            self.counts[split].update(
                documents=1,
                lines=len(document.lines),
                characters=document.characters,
                unknown_tokens=int(np.count_nonzero(ids == self.vocabulary.unk_id)),
            )

    @abc.abstractmethod
    def _add(self, split: str, document: Document, ids: np.ndarray, line_ends: np.ndarray) -> None:
        """Adds a document with its ids; see `Tokenizer.tokenize_documents`."""

    def arrays(self, split: str, order_key: list[int]) -> Iterator[Arrays]:
        """Yields the examples of a split, some thousands at a time, permuted by `order_key`."""
        starts = self._in_order(split, order_key)
        for i in range(0, len(starts), _ENCODE_EXAMPLES):
            ids, mask, segments = self._assembled(split, starts[i : i + _ENCODE_EXAMPLES])
            padding = mask.size - int(np.count_nonzero(mask))
            self.counts[split].update(examples=len(ids), padding=padding)
            yield ids, mask, segments

    @abc.abstractmethod
    def _in_order(self, split: str, order_key: list[int]) -> np.ndarray:
        """Returns the starts of a split's examples in their final order, [N] or [N, 3]."""

    @abc.abstractmethod
    def _assembled(self, split: str, starts: np.ndarray) -> Arrays:
        """Returns the examples at `starts`."""

    def _with_specials(self, arrays: Arrays) -> Arrays:
        """Returns examples with the vocabulary's order of special tokens."""
        return with_cls_last(*arrays) if self.vocabulary.cls_is_last else arrays


class Segments(Layout):
    """ELECTRA's examples: one or two segments of a document."""

    def __init__(self, settings: BuildSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self._documents = [np.zeros([0], np.int32)]
        self._num_tokens = 0
        self._plans: dict[str, list[tuple[int, int, int]]] = {s: [] for s in settings.splits}

    def begin_unit(self, number: int) -> None:
        """Seeds the random choices by unit."""
        generator = random.Random(f"examples {self.settings.seed} {number}")
        self._planner = ExamplePlanner(self.settings.max_seq_length, generator)

    def _add(self, split: str, document: Document, ids: np.ndarray, line_ends: np.ndarray) -> None:
        self._plans[split].extend(
            (self._num_tokens + start, first, second)
            for start, first, second in self._planner.plan(line_ends.tolist())
        )
        self._documents.append(ids)
        self._num_tokens += len(ids)
        self.counts[split].update(tokens=len(ids))

    def _in_order(self, split: str, order_key: list[int]) -> np.ndarray:
        self._documents = [np.concatenate(self._documents)]
        plans = np.array(self._plans[split], np.int64).reshape(-1, 3)  # [N, 3]
        return plans[permutation(len(plans), order_key)]

    def _assembled(self, split: str, starts: np.ndarray) -> Arrays:
        self.counts[split].update(tokens_kept=int(starts[:, 1:].sum()))
        S = self.settings.max_seq_length
        return self._with_specials(assemble(self._documents[0], starts, S, self.vocabulary))


class Packed(Segments):
    """Rows of several of `Segments`' examples, which do not attend to each other.

    `PACKING_GAP` tokens of padding are between them. The mask holds the number of a token's example
    in its row, from 1.
    """

    def __init__(self, settings: BuildSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        self._placed: dict[str, np.ndarray] = {}

    def _in_order(self, split: str, order_key: list[int]) -> np.ndarray:
        plans = super()._in_order(split, order_key)  # [N, 3]
        sizes = plans[:, 1] + plans[:, 2] + ONE_SEGMENT_SPECIALS + (plans[:, 2] > 0)
        places = pack(sizes, self.settings.max_seq_length)  # [N, 3]
        self._placed[split] = np.hstack([plans, places])[np.argsort(places[:, 0], kind="stable")]
        return permutation(int(places[:, 0].max(initial=-1)) + 1, order_key)

    def _assembled(self, split: str, starts: np.ndarray) -> Arrays:
        S, placed = self.settings.max_seq_length, self._placed[split]
        first, last = (np.searchsorted(placed[:, 3], starts, side) for side in ("left", "right"))
        rows = np.repeat(np.arange(len(starts)), last - first)
        chosen = np.concatenate([np.arange(*ends) for ends in zip(first, last)])
        ids = np.full([len(starts), S], self.vocabulary.pad_id, np.int32)
        mask, segments = (np.zeros([len(starts), S], np.uint8) for _ in range(2))
        for i in range(0, len(chosen), _ENCODE_EXAMPLES):
            part = slice(i, i + _ENCODE_EXAMPLES)
            _, offset, number = placed[chosen[part], 3:, None].transpose(1, 0, 2)  # each [n, 1]
            of_examples, inside, of_segments = super()._assembled(split, placed[chosen[part], :3])
            inside = inside.astype(bool)
            row, column, number = (
                np.broadcast_to(x, inside.shape)[inside]
                for x in (rows[part, None], offset + np.arange(S), number)
            )
            ids[row, column], mask[row, column] = of_examples[inside], number
            segments[row, column] = of_segments[inside]
        return ids, mask, segments


class Contiguous(Layout):
    """Blocks of a stream: the documents of a split, each followed by a separator.

    The separator is [SEP], or `<eos>` for words; with `separates_lines` it follows each
    line instead. Each token of the stream is in one block. Blocks begin with an additional token:
    [CLS] or, if the vocabulary has none, the last token of the block before (`<eos>` for the
    first). So a causal language model predicts each token once.

    Training blocks are permuted; held-out blocks keep the order of the text.
    """

    def __init__(self, settings: BuildSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        begin = np.array([self.vocabulary.cls_id], np.int32)
        self._streams = {split: [begin] for split in settings.splits}
        tokenizer_name, corpus_format = settings.vocabulary["tokenizer"], settings.corpus_format
        self._by_line = build_options.separates_lines(tokenizer_name, corpus_format)

    def _add(self, split: str, document: Document, ids: np.ndarray, line_ends: np.ndarray) -> None:
        part = with_separators(ids, line_ends, self.vocabulary, self._by_line)
        self._streams[split].append(part)
        words = sum(len(line.split()) for line in document.lines)
        self.counts[split].update(tokens=len(part), words=words + len(part) - len(ids))

    def _in_order(self, split: str, order_key: list[int]) -> np.ndarray:
        stream, S = np.concatenate(self._streams[split]), self.settings.max_seq_length
        self._streams[split] = [stream]
        starts = np.arange(0, len(stream) - 1, S - 1)  # [N]
        return starts[permutation(len(starts), order_key)] if split == "train" else starts

    def _assembled(self, split: str, starts: np.ndarray) -> Arrays:
        (stream,) = self._streams[split]
        source = starts[:, None] + np.arange(self.settings.max_seq_length)  # [N, S]
        mask = source < len(stream)
        ids = np.where(mask, stream[np.minimum(source, len(stream) - 1)], self.vocabulary.pad_id)
        if not begins_with_last_token(self.vocabulary):
            ids[:, 0] = self.vocabulary.cls_id
        self.counts[split].update(tokens_kept=int(mask.sum(dtype=np.int64)) - len(ids))
        return self._with_specials((ids, mask.astype(np.uint8), np.zeros(mask.shape, np.uint8)))


OF_LAYOUTS = {"segments": Segments, "packed": Packed, "contiguous": Contiguous}


def begins_with_last_token(vocabulary: Vocabulary) -> bool:
    """Returns True if a block begins with the last token of the one before instead of [CLS]."""
    return vocabulary.cls_id == vocabulary.sep_id


def with_cls_last(ids: np.ndarray, mask: np.ndarray, segments: np.ndarray) -> Arrays:
    """Moves the initial <cls> of examples [N, S] after their last token, into segment 2.

    This is XLNet's layout: A <sep> B <sep> <cls>, see `data.tokenization.Frame`.
    """
    last = np.arange(len(ids)), mask.sum(1, dtype=np.int64) - 1
    cls_ids = ids[:, 0]
    # The last column stays: it is padding or, without padding, the new position of <cls>.
    ids, segments = (np.concatenate([x[:, 1:], x[:, -1:]], 1) for x in (ids, segments))
    ids[last], segments[last] = cls_ids, 2
    return ids, mask, segments


def with_separators(
    ids: np.ndarray, line_ends: np.ndarray, vocabulary: Vocabulary, separated_lines: bool
) -> np.ndarray:
    """Returns a document's ids with a separator after it, or after each line: int32 [n]."""
    return np.insert(ids, line_ends if separated_lines else [len(ids)], vocabulary.sep_id)


def pack(sizes: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Places sequences in rows by best fit, longest first, with a gap between two.

    Returns the row of each, its offset and its number in the row, from 1: int64 [N, 3].
    """
    places = np.zeros([len(sizes), 3], np.int64)
    free: list[int] = []  # what rows have left, sorted, each value once
    rows: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)  # (row, sequences)
    count = 0
    for i in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[i])
        if (best := bisect.bisect_left(free, size + PACKING_GAP)) < len(free):
            left = free[best]
            row, number = rows[left].pop()
            if not rows[left]:
                del free[best]
            offset = max_seq_length - left + PACKING_GAP
        else:
            row, number, offset, count = count, 0, 0, count + 1
        places[i] = row, offset, number + 1
        left = max_seq_length - offset - size
        if left > PACKING_GAP and number + 1 < build_options.MAX_SEQUENCES:
            if not rows[left]:
                bisect.insort(free, left)
            rows[left].append((row, number + 1))
    return places


def permutation(size: int, key: list[int]) -> np.ndarray:
    """Returns a permutation of range(size) that depends only on `key`, two integers."""
    # Raw Philox numbers are the same in all NumPy versions; Generator's methods may change.
    exact = np.array(key, np.uint64)  # a list of large numbers would become floats
    return np.argsort(np.random.Philox(key=exact).random_raw(size), kind="stable")


class ExamplePlanner:
    """Splits documents into examples; see the module's docstring."""

    def __init__(self, max_seq_length: int, generator: random.Random) -> None:
        self._S = max_seq_length
        self._random = generator.random  # the only method whose stream Python keeps stable
        self._target = max_seq_length

    def plan(self, line_ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yields (start, first, second) of each example of one document.

        These are the position of its first token, and the numbers of tokens of its segments; the
        second may be 0. `line_ends` has the number of tokens up to the end of each line.
        """
        start = 0
        while line_ends and start < line_ends[-1]:
            # Lines are added until their tokens, without the specials, reach the target.
            last = min(bisect.bisect_left(line_ends, start + self._target), len(line_ends) - 1)
            first, second = self._segments(line_ends, start, line_ends[last])
            yield start, first, second
            start += first + second
            self._target = self._S
            if self._random() < SHORT_TARGET_PROBABILITY:
                shortest = build_options.MIN_TARGET
                self._target = shortest + int(self._random() * (self._S - shortest + 1))

    def _segments(self, line_ends: Sequence[int], start: int, end: int) -> tuple[int, int]:
        """Returns the segment sizes of an example made from the tokens [start, end)."""
        single = self._random() < SINGLE_SEGMENT_PROBABILITY
        boundary = end if single else self._first_segment_end(line_ends, start)
        first = min(boundary - start, self._S - ONE_SEGMENT_SPECIALS)
        second = min(end - start - first, max(0, self._S - TWO_SEGMENTS_SPECIALS - first))
        return first, second

    def _first_segment_end(self, line_ends: Sequence[int], start: int) -> int:
        """Returns the line end at which the first segment ends, before trimming."""
        half = (self._target - TWO_SEGMENTS_SPECIALS) // 2
        # The first line is always included, then lines that stay below half.
        line = bisect.bisect_right(line_ends, start)
        line = max(line, bisect.bisect_left(line_ends, start + half) - 1)
        if line + 1 < len(line_ends) and line_ends[line] - start < half and self._random() < 0.5:
            line += 1  # the line that crosses half
        return line_ends[line]


def assemble(
    tokens: np.ndarray, plans: np.ndarray, max_seq_length: int, vocabulary: Vocabulary
) -> Arrays:
    """Gathers tokens into [CLS] first [SEP] second [SEP], or [CLS] first [SEP], padded.

    `tokens` are ids, int32 [number of tokens]; `plans` are integers [N, 3]: start in `tokens`,
    sizes of the first and second segment. Returns input_ids int32, input_mask uint8 and segment_ids
    uint8, [N, S] each.
    """
    start, first, second = (plans[:, i, None] for i in range(3))  # each [N, 1]
    column = np.arange(max_seq_length)[None]  # [1, S]
    size = first + ONE_SEGMENT_SPECIALS + second + (second > 0)  # [N, 1]
    in_second = column > first + 1  # [N, S]; position first + 1 holds the first [SEP]
    mask = column < size
    source = start + column - 1 - in_second
    input_ids = tokens[np.clip(source, 0, len(tokens) - 1)]
    input_ids[:, 0] = vocabulary.cls_id
    input_ids[column == first + 1] = vocabulary.sep_id
    input_ids[column == size - 1] = vocabulary.sep_id
    input_ids[~mask] = vocabulary.pad_id
    return input_ids, mask.astype(np.uint8), (in_second & mask).astype(np.uint8)

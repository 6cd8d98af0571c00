"""Batches of sequences, padded to their own length, in an order determined by (seed, step).

Groups of `group_size` sequences (1 for most tasks) are shuffled, sorted and divided into batches; a
group's length is that of its longest sequence. If examples have different numbers of sequences that
have to stay together, groups are filled up with other examples, see `_packed`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from convbert.data.streams import READ_AHEAD, without_autotuning
from convbert.finetune.encoding import Encoded
from convbert.training import workers

# Lengths are rounded up to a multiple of this, which keeps the number of shapes low. Groups of the
# same rounded length are batched randomly.
LENGTH_STEP = 8
# Few lengths, for compilers that need a program per length and where compiling is expensive.
FEW_LENGTHS = (32, 64, 128, 256, 512)
# Maximum number of batches to sort groups within: more batches mean less padding, less randomness.
WINDOW_BATCHES = 64


class _Batches:
    """Creates padded batches from indices of sequences.

    `batch_size` is global, in sequences. `length_buckets` determines S: the longest length rounded
    up to a multiple of `LENGTH_STEP` (True), `max_seq_length` (False), or one of a list.
    """

    def __init__(
        self,
        encoded: Encoded,
        batch_size: int,
        max_seq_length: int,
        length_buckets: bool | Sequence[int] = True,
    ):
        self._encoded, self._B = encoded, batch_size
        self._max_seq_length, self._length_buckets = max_seq_length, length_buckets
        self._starts, self._lengths = encoded.row_splits[:-1], encoded.lengths
        own = batch_size // workers.count
        self._share = slice(workers.index * own, (workers.index + 1) * own)  # this worker's
        # Padding reads the value after the last token.
        self._tokens = {name: np.append(x, x.dtype.type(0)) for name, x in encoded.tokens.items()}

    def _padded(self, longest: int) -> int:
        """Returns the length of a batch whose longest sequence has `longest` tokens."""
        buckets, most = self._length_buckets, self._max_seq_length
        if buckets is True:
            buckets = (-(-int(longest) // LENGTH_STEP) * LENGTH_STEP,)
        return min((n for n in (*(buckets or ()), most) if n >= longest), default=most)

    def _dataset(self, batches: Callable[[], Iterator[np.ndarray]]) -> tf.data.Dataset:
        """Returns this worker's share of padded batches, given indices of at most B sequences each.

        Batches have `input_ids`, `input_mask`, `segment_ids` int32 and other token columns [B, S],
        sequence columns [B, ...], and `weight` float32 [B].
        """
        B = self._share.stop - self._share.start
        S = self._max_seq_length if self._length_buckets is False else None
        sequences = self._encoded.sequences
        signature = {
            **{name: tf.TensorSpec([B, S], x.dtype) for name, x in self._tokens.items()},
            **{name: tf.TensorSpec([B, *x.shape[1:]], x.dtype) for name, x in sequences.items()},
            "input_mask": tf.TensorSpec([B, S], tf.int32),
            "weight": tf.TensorSpec([B], tf.float32),
        }
        dataset = tf.data.Dataset.from_generator(
            lambda: map(self._batch, batches()), output_signature=signature
        )
        return without_autotuning(dataset.prefetch(READ_AHEAD))

    def _batch(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns of a batch, filled up to B sequences."""
        missing = self._B - len(numbers)
        weight = np.pad(numbers >= 0, (0, missing)).astype(np.float32)
        numbers = np.pad(_copied(numbers), (0, missing), mode="edge")
        lengths = self._lengths[numbers]
        S = self._padded(lengths.max())
        numbers, lengths, weight = (x[self._share] for x in (numbers, lengths, weight))
        positions = np.arange(S)
        mask = positions < lengths[:, None]  # [B, S]
        places = np.where(mask, self._starts[numbers][:, None] + positions, -1)  # [B, S]
        return {
            **{name: column[places] for name, column in self._tokens.items()},
            **{name: column[numbers] for name, column in self._encoded.sequences.items()},
            "input_mask": mask.astype(np.int32),
            "weight": weight,
        }


class TrainingBatches(_Batches):
    """An endless stream of batches; each epoch contains every group once, in a new order.

    Epochs follow each other without a gap, so no batch is short. The batches that begin in an epoch
    are divided into equal windows of at most `WINDOW_BATCHES`. In a window, groups are sorted by
    length and divided into batches, and the batches are permuted.

    `group_size` consecutive sequences stay together; it divides B. With `whole_examples` it is
    `slots`, and sequences that only fill up a batch have `weight` 0.
    """

    def __init__(
        self,
        encoded: Encoded,
        batch_size: int,
        seed: int,
        *,
        group_size: int = 1,
        whole_examples: bool = False,
        **lengths: Any,
    ):
        super().__init__(encoded, batch_size, **lengths)
        group_size = slots(encoded, batch_size) if whole_examples else group_size
        self._packs = whole_examples and group_size > 1
        if self._packs:
            self._sizes, self._count = _sizes(encoded), _number_of_groups(encoded, group_size)
            longest = encoded.lengths
        else:
            longest = _groups(encoded, group_size)
            self._count = len(longest)
        self._group_size, self._groups_per_batch = group_size, batch_size // group_size
        self._buckets = -(-encoded.lengths // LENGTH_STEP)  # [n]
        self.lengths = sorted({self._padded(n) for n in np.unique(longest)})  # all values of S
        self._seed = seed % 2**64  # NumPy's seeds are not negative

    def __call__(self, start_step: int = 0) -> tf.data.Dataset:
        """Returns the stream from batch `start_step` on, as if it had been read from the start."""
        return self._dataset(lambda: self.numbers(start_step))

    def numbers(self, start_step: int = 0) -> Iterator[np.ndarray]:
        """Yields the sequence indices of each batch from `start_step` on, int64 [B].

        ~index, which is negative, is a copy of `weight` 0.
        """
        epoch = start_step * self._groups_per_batch // self._count
        while True:
            for start, stop in self._windows(epoch):
                if stop > start_step:
                    yield from self._arrange(start, stop)[max(0, start_step - start) :]
            epoch += 1

    def _windows(self, epoch: int) -> list[tuple[int, int]]:
        """Returns (first batch, end) of each window; a batch belongs to the epoch it begins in."""
        n, B = self._count, self._groups_per_batch
        first, end = -(-epoch * n // B), -(-(epoch + 1) * n // B)
        count = -(-(end - first) // WINDOW_BATCHES)
        bounds = [first + i * (end - first) // max(1, count) for i in range(count + 1)]
        return list(itertools.pairwise(bounds))

    def _arrange(self, start: int, stop: int) -> np.ndarray:
        """Returns the sequences of the batches of a window: int64 [batches, B]."""
        B = self._groups_per_batch
        groups = self._stream(start * B, stop * B)
        # Stable: keeps the epoch's permutation among equal lengths.
        longest = self._buckets[_copied(groups)].max(axis=1)
        groups = groups[np.argsort(longest, kind="stable")]
        random = np.random.default_rng([1, self._seed, start])
        return random.permutation(groups.reshape(stop - start, -1))  # [batches, B]

    def _stream(self, start: int, stop: int) -> np.ndarray:
        """Returns groups [start, stop) of the concatenated epochs' permutations: [n, G]."""
        n = self._count
        epochs = range(start // n, (stop - 1) // n + 1)
        orders = [self._epoch(epoch) for epoch in epochs]
        offset = epochs.start * n
        return np.concatenate(orders)[start - offset : stop - offset]

    def _epoch(self, epoch: int) -> np.ndarray:
        """Returns all groups in the order of an epoch, as sequence indices: [n, G]."""
        random = np.random.default_rng([2, self._seed, epoch])
        if not self._packs:
            order = random.permutation(self._count)
            return _members(order, self._group_size).reshape(self._count, -1)
        order = random.permutation(len(self._sizes))
        groups = _packed(order, self._sizes, self._buckets, self._count, self._group_size)
        return random.permutation(groups)


class EvaluationBatches(_Batches):
    """One pass over the sequences, with groups sorted by length.

    The last batch is filled up with copies of its last sequence with `weight` 0. `order` int64 [n]
    has the sequences' indices in the order of output; `own` int64 [batches x B / workers] those on
    this worker, including copies.
    """

    def __init__(self, encoded: Encoded, batch_size: int, *, group_size: int = 1, **lengths: Any):
        super().__init__(encoded, batch_size, **lengths)
        groups = _groups(encoded, group_size)
        self.order = _members(np.argsort(groups, kind="stable"), group_size)
        filled = np.pad(self.order, (0, -len(self.order) % batch_size), mode="edge")
        self.own = filled.reshape(-1, batch_size)[:, self._share].reshape(-1)

    def __call__(self) -> tf.data.Dataset:
        """Returns the batches in the order of lengths."""
        starts = range(0, len(self.order), self._B)
        return self._dataset(lambda: (self.order[i : i + self._B] for i in starts))


def slots(encoded: Encoded, batch_size: int) -> int:
    """Returns the group size that holds the largest example and divides a batch."""
    most = int(_sizes(encoded).max())
    return next((n for n in range(most, batch_size + 1) if batch_size % n == 0), most)


def batches_per_epoch(encoded: Encoded, batch_size: int, whole_examples: bool = False) -> int:
    """Returns the number of batches that hold every sequence once, the last one filled up."""
    group_size = slots(encoded, batch_size) if whole_examples else 1
    return -(-_number_of_groups(encoded, group_size) * group_size // batch_size)


def _number_of_groups(encoded: Encoded, group_size: int) -> int:
    """Returns the number of groups of whole examples, see `_packed`."""
    several = int(np.sum(_sizes(encoded) > 1)) if group_size > 1 else 0
    return max(several, -(-len(encoded) // group_size))


def _sizes(encoded: Encoded) -> np.ndarray:
    """Returns the number of sequences of each example."""
    return np.unique(encoded.sequences["example"], return_counts=True)[1]


def _packed(
    order: np.ndarray, sizes: np.ndarray, buckets: np.ndarray, count: int, group_size: int
) -> np.ndarray:
    """Packs examples, in this order, into `count` groups of G sequences: int64 [count, G].

    An example of several sequences begins a group. Single ones, by ascending length and then in the
    given order, fill up these groups and form further ones. Empty slots at the end are copies,
    ~index. `sizes` are the numbers of sequences of the examples, `buckets` the sequences' lengths.
    """
    starts = np.cumsum(sizes) - sizes
    several, single = order[sizes[order] > 1], starts[order[sizes[order] == 1]]
    single = single[np.argsort(buckets[single], kind="stable")]
    used = np.zeros(count, np.int64)
    used[count - len(several) :] = sizes[several]
    place = np.arange(group_size)
    taken = place < used[:, None]  # [count, G]
    groups = np.full([count, group_size], -1)
    first = np.repeat(starts[several], sizes[several])
    groups[taken] = first + np.nonzero(taken)[1]
    free = np.flatnonzero(~taken)[: len(single)]
    groups.flat[free] = single
    return np.where(groups < 0, ~groups[:, :1], groups)


def _copied(numbers: np.ndarray) -> np.ndarray:
    """Returns the sequence indices, with copies that fill a batch as ordinary ones."""
    return np.where(numbers < 0, ~numbers, numbers)


def _groups(encoded: Encoded, group_size: int) -> np.ndarray:
    """Returns the length of the longest sequence of each group: int64 [groups]."""
    example = encoded.sequences["example"]
    if len(encoded) % group_size or np.any(np.ptp(example.reshape(-1, group_size), axis=1)):
        raise ValueError(f"each example should have a multiple of {group_size} sequences")
    return encoded.lengths.reshape(-1, group_size).max(axis=1)


def _members(groups: np.ndarray, group_size: int) -> np.ndarray:
    """Returns the sequence indices of groups: int64 [groups x group_size]."""
    return (groups[:, None] * group_size + np.arange(group_size)).reshape(-1)

"""Order, padding and resumption of fine-tuning batches."""

import hashlib
import itertools

import numpy as np
import pytest

from convbert.finetune import batches as module
from convbert.finetune.batches import EvaluationBatches, TrainingBatches
from convbert.finetune.encoding import Encoded
from tests.finetune.kinds_support import random_sequences

S_MAX = 45


def encoded_of(n, seed=0, longest=S_MAX):
    """Sequences whose tokens say which they are of: i has the tokens 1000 * (i + 1) + place."""
    lengths = np.random.default_rng(seed).integers(3, longest + 1, n)
    row_splits = np.concatenate([[0], np.cumsum(lengths)])
    row = np.repeat(np.arange(n), lengths)
    ids = 1000 * (row + 1) + np.arange(row_splits[-1]) - row_splits[row]
    tokens = {
        "input_ids": ids.astype(np.int32),
        "segment_ids": np.ones_like(ids, np.int32),
        "tag_weight": np.ones(len(ids), np.float32),
    }
    rows = {
        "example": np.arange(n, dtype=np.int32),
        "label": np.arange(n, dtype=np.float32) / 2,
        "pair": np.stack([np.arange(n), -np.arange(n)], axis=1).astype(np.int32),  # [n, 2]
    }
    return Encoded(row_splits, tokens, rows, 0)


def take(dataset, count):
    return [{k: v.numpy() for k, v in batch.items()} for batch in dataset.take(count)]


def check_batch(batch, encoded, lengths=(*range(8, S_MAX, 8), S_MAX)):
    numbers = batch["example"]
    longest = max(encoded.lengths[i] for i in numbers)
    S = next(length for length in lengths if length >= longest)
    assert batch["input_ids"].shape == (len(numbers), S)
    for position, i in enumerate(numbers):
        tokens = slice(encoded.row_splits[i], encoded.row_splits[i + 1])
        padding = [0] * (S - encoded.lengths[i])
        assert batch["input_mask"][position].tolist() == [1] * encoded.lengths[i] + padding
        for name, column in encoded.tokens.items():
            assert batch[name].dtype == column.dtype
            assert batch[name][position].tolist() == column[tokens].tolist() + padding
        for name, column in encoded.sequences.items():
            assert batch[name].dtype == column.dtype
            assert np.array_equal(batch[name][position], column[i])
    assert (batch["input_mask"].dtype, batch["weight"].dtype) == (np.int32, np.float32)


LENGTHS = {True: [8, 16, 24, 32, 40, S_MAX], False: [S_MAX], (32, 16): [16, 32, S_MAX]}


@pytest.mark.parametrize("length_buckets", LENGTHS)
def test_batches_hold_their_sequences_padded(length_buckets):
    encoded, lengths = encoded_of(100), LENGTHS[length_buckets]
    own = take(TrainingBatches(encoded, 8, 1, max_seq_length=S_MAX)(), 30)
    kwargs = {"max_seq_length": S_MAX, "length_buckets": length_buckets}
    training = TrainingBatches(encoded, 8, 1, **kwargs)
    assert training.lengths == lengths
    fixed = lengths == [S_MAX]
    assert training().element_spec["input_ids"].shape == [8, S_MAX if fixed else None]
    batches = take(training(), 30)
    for batch, other in zip(batches, own):  # lengths change padding alone
        S = other["input_ids"].shape[1]
        assert np.array_equal(other["input_ids"], batch["input_ids"][:, :S])
        assert not batch["input_ids"][:, S:].any()
        assert batch["weight"].all()
    batches += take(EvaluationBatches(encoded, 8, **kwargs)(), 100)
    for batch in batches:
        check_batch(batch, encoded, lengths)
    found = {batch["input_ids"].shape[1] for batch in batches}
    assert found <= set(lengths)
    assert length_buckets is True or found == set(lengths)


@pytest.mark.parametrize(("n", "batch_size"), [(1003, 8), (100, 7), (8, 8), (5, 8), (1, 4), (7, 1)])
def test_every_epoch_has_every_sequence_once(n, batch_size):
    batches = TrainingBatches(encoded_of(n, longest=9), batch_size, 2, max_seq_length=S_MAX)
    epochs = 6
    needed = -(-epochs * n // batch_size)
    rows = np.stack(list(itertools.islice(batches.numbers(), needed)))
    counts = np.bincount(rows.ravel(), minlength=n)
    assert counts.min() >= epochs  # nothing dropped, nothing delayed beyond the epoch's last batch
    assert counts.sum() == needed * batch_size
    assert counts.max() <= epochs + -(-batch_size // n)
    # The same at the end of each epoch.
    for epoch in range(1, epochs):
        so_far = rows[: -(-epoch * n // batch_size)]
        assert np.bincount(so_far.ravel(), minlength=n).min() >= epoch


def test_sequences_of_similar_length_meet_and_short_batches_do_not_come_first():
    encoded = encoded_of(8000)
    stream = TrainingBatches(encoded, 16, 1, max_seq_length=S_MAX).numbers()
    lengths = encoded.lengths[np.stack(list(itertools.islice(stream, 500)))]  # [500, 16]
    padded = -(-lengths.max(axis=1) // 8) * 8 * 16
    assert lengths.sum() / padded.sum() > 0.83  # random batches would fill 0.51
    means = lengths.mean(axis=1)
    window = module.WINDOW_BATCHES
    assert abs(np.corrcoef(np.arange(window), means[:window])[0, 1]) < 0.4


@pytest.mark.parametrize(("n", "batch_size"), [(1003, 4), (37, 8), (3, 8)])
def test_resumed_is_uninterrupted(n, batch_size):
    batches = TrainingBatches(encoded_of(n), batch_size, 5, max_seq_length=S_MAX)
    steps = 300
    rows = list(itertools.islice(batches.numbers(), steps))
    for start in (0, 1, 2, 5, 62, 63, 64, 65, 250, 251, 252, 299):
        resumed = list(itertools.islice(batches.numbers(start), steps - start))
        assert np.array_equal(rows[start:], resumed), start
    np.testing.assert_equal(take(batches(), 80)[70:], take(batches(70), 10))


@pytest.mark.parametrize(("n", "batch_size"), [(100, 8), (96, 8), (3, 8), (1, 1)])
def test_evaluation_gives_every_sequence_once_and_fillers_no_weight(n, batch_size):
    encoded = encoded_of(n)
    evaluation = EvaluationBatches(encoded, batch_size, max_seq_length=S_MAX)
    batches = take(evaluation(), 1000)
    assert len(batches) == -(-n // batch_size)
    emitted = np.concatenate([batch["example"] for batch in batches])
    weight = np.concatenate([batch["weight"] for batch in batches])
    assert emitted[:n].tolist() == evaluation.order.tolist()
    assert sorted(evaluation.order) == list(range(n))
    assert weight.tolist() == [1.0] * n + [0.0] * (len(batches) * batch_size - n)
    for batch in batches:
        check_batch(batch, encoded)
    np.testing.assert_equal(batches, take(evaluation(), 1000))  # a second pass is the same


@pytest.mark.parametrize(
    ("n", "batch_size", "seed", "digest"),
    [(1000, 8, 1, "9cd2bb85b6d2fb24"), (37, 16, -3, "8c940b857f3174ad")],
)
def test_the_order_is_that_of_the_runs_so_far(n, batch_size, seed, digest):
    """A run that was begun by an earlier version is resumed in its order, over several epochs."""
    stream = TrainingBatches(encoded_of(n), batch_size, seed, max_seq_length=S_MAX).numbers(3)
    rows = np.stack(list(itertools.islice(stream, 400))).astype(np.int64)
    assert hashlib.sha256(rows.tobytes()).hexdigest().startswith(digest)


@pytest.mark.parametrize(("examples", "group", "batch_size"), [(100, 3, 12), (7, 4, 8), (2, 4, 16)])
def test_the_sequences_of_a_group_stay_together_in_their_order(examples, group, batch_size):
    encoded, options = encoded_of(examples * group), {"max_seq_length": S_MAX, "group_size": group}
    encoded.sequences["example"] = np.repeat(np.arange(examples, dtype=np.int32), group)
    batches = TrainingBatches(encoded, batch_size, 5, **options)
    rows = np.stack(list(itertools.islice(batches.numbers(), 40)))
    members = rows.reshape(-1, group)
    assert (members == members[:, :1] + np.arange(group)).all()
    assert (members[:, 0] % group == 0).all()
    epoch = -(-examples * group // batch_size)
    assert set(rows[:epoch].ravel()) == set(range(examples * group))
    assert np.array_equal(rows[7:], list(itertools.islice(batches.numbers(7), 33)))
    (first,) = take(batches(), 1)
    assert first["example"].tolist() == (rows[0] // group).tolist()
    evaluation = EvaluationBatches(encoded, batch_size, **options)
    order = evaluation.order.reshape(-1, group)
    assert (order == order[:, :1] + np.arange(group)).all()
    longest = encoded.lengths[order].max(axis=1)
    assert (np.diff(longest) >= 0).all()
    weight = np.concatenate([batch["weight"] for batch in take(evaluation(), 1000)])
    assert weight.sum() == examples * group


WHOLE = [[1] * 30 + [2, 3, 1, 2] + [1] * 20, [2, 1, 4, 4, 1], [4], [2] * 40 + [8], [2, 3, 5, 7] * 9]


@pytest.mark.parametrize("sizes", WHOLE)
def test_batches_keep_examples_whole_and_each_epoch_has_all(sizes):
    encoded, B = random_sequences("tagging", sizes, 24), 8
    batches = TrainingBatches(encoded, B, 5, max_seq_length=24, whole_examples=True)
    G, example = module.slots(encoded, B), encoded.sequences["example"]
    assert max(sizes) <= G in (4, 8)
    rows = np.stack(list(itertools.islice(batches.numbers(), 400)))  # [400, B]
    for numbers in rows:
        for number in {example[i] for i in numbers if i >= 0}:
            own = np.flatnonzero(example == number)
            for place in np.flatnonzero(numbers == own[0]):
                assert numbers[place : place + len(own)].tolist() == own.tolist()
                assert place // G == (place + len(own) - 1) // G  # on one device
    counts = np.bincount(rows[rows >= 0], minlength=len(encoded))
    assert counts.max() - counts.min() <= 2  # the last epoch is not whole
    steps = module.batches_per_epoch(encoded, B, whole_examples=True)
    for end, whole in ((steps, True), (steps - 1, False)):
        assert ({*rows[:end].ravel()} >= {*range(len(encoded))}) is whole
    np.testing.assert_array_equal(rows[37:42], list(itertools.islice(batches.numbers(37), 5)))
    assert {*next(iter(batches()))["weight"].numpy()} <= {0.0, 1.0}
    assert module.slots(random_sequences("tagging", [9]), B) == 9

"""Records: the library's messages, in an order that can be resumed; what broken files get."""

import itertools
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.common.files import write_json
from convbert.data import input_pipeline, records
from tests.damage_support import cut, delete

S = 8


def write_file(path, first: int, count: int, length: int = S) -> str:
    """A record file whose examples are told apart by their first id."""
    ids = np.zeros([count, length], np.int32)
    ids[:, 0] = np.arange(first, first + count)
    ones = np.ones_like(ids)
    records.write_record_file(str(path), [records.encode_examples(ids, ones, ones - 1)])
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("records")
    sizes = [7, 5, 0, 9, 4]  # 25 records; one file is empty, as ELECTRA's may be
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return [write_file(folder / f"part-{i}", starts[i], sizes[i]) for i in range(len(sizes))]


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    """Groups and windows so small that 25 records need several of each."""
    monkeypatch.setattr(input_pipeline, "FILES_PER_GROUP", 2)
    monkeypatch.setattr(input_pipeline, "WINDOW", 5)


def first_ids(files, steps: int | None = None, **options) -> list[list[int]]:
    options = {"batch_size": 4, "max_seq_length": S, "seed": 1, **options}
    dataset = input_pipeline.pretraining_dataset(files, **options)
    batches = itertools.islice(dataset.as_numpy_iterator(), steps)
    return [batch["input_ids"][:, 0].tolist() for batch in batches]


def test_every_record_once_per_epoch_in_a_new_order(files):
    stream = np.ravel(first_ids(files, 25)).tolist()  # 100 records: four epochs of 25
    epochs = [stream[i : i + 25] for i in range(0, 100, 25)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(25))
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert epochs[0] != sorted(epochs[0])
    batches = first_ids(files[4:], 3, batch_size=6)  # four records, fewer than a batch: 21..24
    assert [len(batch) for batch in batches] == [6, 6, 6]
    stream = np.ravel(batches).tolist()
    assert sorted(stream[:4]) == sorted(stream[4:8]) == [21, 22, 23, 24]


@pytest.mark.parametrize(
    ("batch_size", "start_step"), [*((4, step) for step in (1, 3, 6, 7, 13, 19)), (5, 5)]
)
def test_resuming_equals_never_having_stopped(files, batch_size, start_step):
    # 6.25 batches per epoch, or 5: the first epoch, its boundary, later epochs.
    whole = first_ids(files, 30, batch_size=batch_size)
    found = first_ids(files, 8, batch_size=batch_size, start_step=start_step)
    assert found == whole[start_step:][:8]


def test_the_seed_sets_the_order_and_the_global_seed_does_not(files):
    tf.random.set_seed(3)
    one = first_ids(files, 6)
    tf.random.set_seed(4)
    assert first_ids(files, 6) == one
    assert first_ids(files, 6, seed=2) != one


def test_evaluation_keeps_the_order_and_fills_the_last_batch(files):
    options = {"batch_size": 4, "max_seq_length": S, "training": False}
    dataset = input_pipeline.pretraining_dataset(files, **options)
    assert dataset.element_spec["input_ids"] == tf.TensorSpec([4, S], tf.int32)
    assert not dataset.options().autotune.enabled
    batches = list(dataset.as_numpy_iterator())
    ids = np.concatenate([batch["input_ids"] for batch in batches])
    mask = np.concatenate([batch["input_mask"] for batch in batches])
    assert ids[:, 0].tolist() == [*range(25), 0, 0, 0]
    np.testing.assert_array_equal(mask.sum(axis=1), [S] * 25 + [0] * 3)
    assert first_ids(files, training=False, start_step=6) == [[24, 0, 0, 0]]
    assert first_ids(files, training=False, start_step=7) == []


def test_no_records_is_rejected(tmp_path, files):
    with pytest.raises(InputError):
        input_pipeline.record_files(str(tmp_path), "heldout")
    for nothing in ([], [files[2]]):
        with pytest.raises(InputError):
            first_ids(nothing, 1)
    assert list(input_pipeline.count_records(files).values()) == [7, 5, 0, 9, 4]


def example(**changes) -> bytes:
    """A record of ones, but for some features."""
    values = {name: [1] * S for name in records.FEATURES} | changes
    return library_example(**{n: v for n, v in values.items() if v}).SerializeToString()


@pytest.mark.parametrize(
    ("wrong", "feature"),
    [
        ({name: [1] * 16 for name in records.FEATURES}, "max_seq_length=8"),
        ({"input_mask": None}, "input_mask"),
        ({"input_ids": [1] * (S - 1) + [20]}, "input_ids"),
        ({"input_ids": [1] * (S - 1) + [-1]}, "input_ids"),
        ({"segment_ids": [1] * (S - 1) + [3]}, "segment_ids"),
        ({"input_mask": [1] * (S - 1) + [2]}, "input_mask"),
    ],
)
def test_wrong_records_are_named(tmp_path, files, wrong, feature):
    """The first record of a file at once, a later one while reading."""
    first, late = str(tmp_path / "first"), str(tmp_path / "late")
    records.write_record_file(first, [[example(**wrong)]])
    with pytest.raises(InputError, match=f"{first}.*{feature}.*Received"):
        first_ids([*files[:3], first], 1, vocab_size=20)
    records.write_record_file(late, [[example()] * 4 + [example(**wrong)]])
    with pytest.raises(InputError, match=files[0].rpartition("/")[0]):
        read_all([*files[:3], late], vocab_size=20)


def read_all(files, vocab_size=None):
    with input_pipeline.clear_read_errors(files):
        first_ids(files, vocab_size=vocab_size, training=False)


@pytest.mark.parametrize(
    "damage",
    [
        None,
        lambda content: b"This is no record file, but there is a lot of it.",
        lambda content: content[:-20],
        lambda content: content[:-30] + bytes([content[-30] ^ 1]) + content[-29:],
    ],
)
def test_damaged_files_are_named(tmp_path, files, damage):
    path = tmp_path / "file"
    write_file(path, 0, 10)
    content = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(content))
    for read in (read_all, input_pipeline.count_records):
        with pytest.raises(InputError):
            read([*files, str(path)])


@pytest.fixture
def listed(tmp_path):
    """A data folder with its manifest and three record files, one of them empty."""
    entries = {}
    for split, count in (("train", 5), ("train", 0), ("heldout", 3)):
        name = f"{input_pipeline.SPLITS[split]}/pretrain_data.tfrecord-{len(entries)}"
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_file(tmp_path / name, 0, count)
        entries[name] = {"records": count, "bytes": (tmp_path / name).stat().st_size}
    write_json(str(tmp_path / "manifest.json"), {"files": entries})
    return tmp_path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *((damage, " should hold the 5 records") for damage in (delete, cut)),
        (lambda file: write_file(f"{file}-more", 0, 1), "-more is not one of the files"),
    ],
)
def test_files_that_are_not_as_listed_are_named(listed, change, said):
    file = input_pipeline.record_files(str(listed))[0]
    change(pathlib.Path(file))
    with pytest.raises(InputError, match=f"{file}{said}"):
        input_pipeline.record_files(str(listed))


def test_counts_come_from_the_manifest_while_sizes_match(listed):
    manifest = json.loads((listed / "manifest.json").read_text())
    for entry in manifest["files"].values():
        entry["records"] += 10
    write_json(str(listed / "manifest.json"), manifest)
    files = input_pipeline.record_files(str(listed))
    assert list(input_pipeline.count_records(files).values()) == [15, 10]
    write_file(files[0], 0, 4)
    assert list(input_pipeline.count_records(files).values()) == [4, 10]


def library_example(**features) -> tf.train.Example:
    lists = {name: tf.train.Int64List(value=values) for name, values in features.items()}
    features = {name: tf.train.Feature(int64_list=values) for name, values in lists.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


@pytest.mark.parametrize("S", [1, 5, 127, 128, 129, 512, 20000])
def test_bytes_parse_to_the_librarys_message(S):
    rng = np.random.default_rng(S)
    N = 7 if S < 1000 else 2
    ids = rng.integers(0, [[100], [128], [20000], [250000], [2**21], [1], [30522]][:N], [N, S])
    edges = [0, 127, 128, 16383, 16384, 2**21 - 1][:S]
    ids[1, : len(edges)] = edges
    mask, segments = rng.integers(0, 2, [2, N, S])
    encoded = records.encode_examples(ids, mask, segments)
    for i in range(N):
        expected = library_example(input_ids=ids[i], input_mask=mask[i], segment_ids=segments[i])
        assert tf.train.Example.FromString(encoded[i]) == expected
        # The order of map entries is free, the number of bytes is not.
        assert len(encoded[i]) == len(expected.SerializeToString())

"""TFRecords -> batches, in an order that is a function of (files, seed, step) alone.

An epoch reads every record once. Its files are permuted and divided into groups of
`FILES_PER_GROUP`; the files of a group are interleaved record by record, and the stream of a group
is divided into windows of `WINDOW` records, each permuted. All permutations are stateless functions
of (seed, epoch, group, window), so reading can start anywhere: whole epochs and groups are skipped
by arithmetic, whole windows by skipping unparsed records. A batch may span two epochs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from convbert.common import storage
from convbert.common.errors import InputError, reason
from convbert.common.files import check_regular
from convbert.data import manifest, records
from convbert.data.streams import READ_AHEAD, without_autotuning

SPLITS = {"train": "pretrain_tfrecords", "heldout": "heldout_tfrecords"}
FILES_PER_GROUP = 16
WINDOW = 16384
_PLAIN_WINDOW = 1024


def record_files(data_dir: str, split: str = "train") -> list[str]:
    """Returns the record files of a split of a data folder, in name order.

    InputError if names or sizes differ from the manifest's or, without a manifest, if the number of
    files differs from N in `-of-N`.
    """
    pattern = os.path.join(data_dir, SPLITS[split], "pretrain_data.tfrecord-*")
    files = [file for file in storage.matching(*os.path.split(pattern)) if ".tmp-" not in file]
    if not files:
        raise InputError(f"{pattern}: no record files; build_pretraining_data.py makes them")
    content = manifest.read_manifest(data_dir)
    if content is None:
        total = re.search(r"-of-0*(\d+)$", files[0])
        if total and int(total[1]) != len(files):
            raise InputError(
                f"{os.path.dirname(files[0])} should hold the {total[1]} files that their names"
                f" count. Received: {len(files)} files"
            )
        return files
    for name, entry in content.get("files", {}).items():
        path = os.path.join(data_dir, name)
        if not name.startswith(SPLITS[split]):
            continue
        size = storage.getsize(path) if storage.exists(path) else "no"
        if size != entry["bytes"]:
            raise InputError(
                f"{path} should hold the {entry['records']:,} records in {entry['bytes']:,} bytes"
                f" that {manifest.MANIFEST} lists: copy it again, or build the data into another"
                f" folder. Received: {size} bytes"
            )
    if foreign := {*files} - {os.path.join(data_dir, name) for name in content.get("files", files)}:
        raise InputError(f"{min(foreign)} is not one of the files that {manifest.MANIFEST} lists")
    return files


def count_records(files: Sequence[str]) -> dict[str, int]:
    """Returns each file's number of records, from the manifest or by reading the file."""
    read_manifest = functools.cache(manifest.read_manifest)
    counts = {}
    for file in files:
        folder, name = os.path.split(storage.abspath(file))
        folder, split = os.path.split(folder)
        listed = (read_manifest(folder) or {}).get("files", {}).get(f"{split}/{name}")
        if listed and storage.exists(file) and storage.getsize(file) == listed["bytes"]:
            counts[file] = listed["records"]
        else:
            counts[file] = records.count_file(file)
    return counts


class _Stream:
    """The serialized records of files: shuffled without end in training, else once, in order."""

    def __init__(self, files: Sequence[str], seed: int, training: bool) -> None:
        self.files, self.seed, self.training = files, seed, training
        self.files_per_group = FILES_PER_GROUP if training else 1
        self.window = WINDOW if training else _PLAIN_WINDOW
        self.num_groups = -(-len(files) // self.files_per_group)  # in an epoch

    def windows(self, start: int) -> tf.data.Dataset:
        """Returns windows of records, string [<= window], from record `start` of the stream on."""
        epoch, group, skip = self.find(start)

        def epoch_windows(number: tf.Tensor) -> tf.data.Dataset:
            resumed = tf.cast(number == epoch, tf.int64)  # later epochs start at their beginning
            return self.epoch(number, resumed * group, resumed * skip)

        last_epoch = np.iinfo(np.int64).max if self.training else 1
        return tf.data.Dataset.range(epoch, last_epoch).flat_map(epoch_windows).prefetch(1)

    def file_order(self, epoch: int | tf.Tensor) -> tf.Tensor:
        """Returns the file indices in the order of an epoch, int64 [number of files]."""
        if not self.training:
            return tf.range(len(self.files), dtype=tf.int64)
        # The windows' seeds have a second part >= 0; here it is negative.
        return _permutation(len(self.files), [self.seed, -1 - tf.cast(epoch, tf.int64)])

    def find(self, record: int) -> tuple[int, int, int]:
        """Returns epoch, group, and offset in the group, of a record of the endless stream."""
        if not record:
            return 0, 0, 0  # without counting records
        counted = count_records(self.files)
        counts = np.array([counted[file] for file in self.files])
        epoch, offset = divmod(record, int(counts.sum()))
        ordered = counts[self.file_order(epoch).numpy()]
        sizes = np.add.reduceat(ordered, range(0, len(ordered), self.files_per_group))
        ends = np.cumsum(sizes)
        group = int(np.searchsorted(ends, offset, side="right"))
        return epoch, group, int(offset - (ends - sizes)[group])

    def epoch(self, epoch: tf.Tensor, first_group: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        """Returns windows from record `skip` of `first_group` to the epoch's end."""
        order = self.file_order(epoch)

        def group_windows(group: tf.Tensor) -> tf.data.Dataset:
            start = group * self.files_per_group
            paths = tf.gather(tf.constant(self.files), order[start : start + self.files_per_group])
            resumed = tf.cast(group == first_group, tf.int64)
            return self._group(paths, epoch, group, resumed * skip)

        return tf.data.Dataset.range(first_group, self.num_groups).flat_map(group_windows)

    def _group(
        self, paths: tf.Tensor, epoch: tf.Tensor, group: tf.Tensor, skip: tf.Tensor
    ) -> tf.data.Dataset:
        serialized = tf.data.Dataset.from_tensor_slices(paths).interleave(
            lambda path: tf.data.TFRecordDataset(path, buffer_size=1 << 18),
            cycle_length=self.files_per_group,
        )
        first_window = skip // self.window

        def arrange(window: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
            if self.training:
                # Distinct for up to 2**16 groups per epoch and 2**24 windows per group.
                key = (epoch * 2**16 + group) * 2**24 + window
                batch = tf.gather(batch, _permutation(tf.size(batch), [self.seed, key]))
            resumed = tf.cast(window == first_window, tf.int64)
            return batch[resumed * (skip % self.window) :]

        windows = serialized.skip(first_window * self.window).batch(self.window)
        return windows.enumerate(first_window).map(arrange)


def _permutation(size: int | tf.Tensor, seed: Sequence[int | tf.Tensor]) -> tf.Tensor:
    """Returns a permutation of range(size) that depends only on `seed`, not on a global seed."""
    seed = tf.stack([tf.cast(part, tf.int64) for part in seed])
    keys = tf.random.stateless_uniform(
        [size], seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
    )
    return tf.argsort(keys, stable=True)


def pretraining_dataset(
    files: Sequence[str],
    *,
    batch_size: int,
    max_seq_length: int,
    seed: int = 0,
    start_step: int = 0,
    offset: int = 0,
    training: bool = True,
    vocab_size: int | None = None,
    packed: bool = False,
    worker: int = 0,
    workers: int = 1,
) -> tf.data.Dataset:
    """Creates a dataset of unmasked pre-training batches, resumable at any step.

    Args:
        files: TFRecord files of ELECTRA's schema. Their order matters, their folder does not.
        batch_size: B, the global batch size.
        max_seq_length: S, the length the records were built with.
        start_step: number of batches to skip: with start_step=t, the dataset equals the
            uninterrupted one from batch t on.
        offset: number of examples to skip besides those of `start_step`; may be negative.
        training: False keeps the order of the files and ends after one epoch, with a last batch
            that is filled up with examples that are all padding (`input_mask` 0).
        vocab_size: V; ids outside [0, V) are rejected. None skips the check of the upper bound.
        packed: whether records have several sequences.
        worker, workers: index and number of the equal shares of each batch; only this share is
            parsed and returned. All records are read, as every batch has records of every file.

    Returns a dataset of dicts `input_ids`, `input_mask` and `segment_ids`, int32 [B / workers, S];
    with `packed` also `sequence_ids`, see `model.backbone.Backbone`.

    Raises InputError without records, and for an invalid first record. Later ones raise errors
    while iterating, see `clear_read_errors`.
    """
    files = tuple(str(file) for file in files)
    if not check_first_records(files, max_seq_length, vocab_size, packed):
        folder = os.path.dirname(files[0]) if files else "an empty list of files"
        raise InputError(f"there are no records in {folder}")
    share = batch_size // workers
    windows = _Stream(files, seed, training).windows(start_step * batch_size + offset)
    dataset = windows.rebatch(batch_size, drop_remainder=training)
    if workers > 1:
        dataset = dataset.map(lambda batch: batch[worker * share : (worker + 1) * share])

    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        features = records.parse_examples(serialized, max_seq_length)
        with tf.control_dependencies(records.value_checks(features, vocab_size, packed)):
            missing = share - tf.shape(serialized)[0]
            features = {name: tf.pad(x, [[0, missing], [0, 0]]) for name, x in features.items()}
        if packed:
            features["sequence_ids"] = features["input_mask"]
            features["input_mask"] = tf.minimum(features["input_mask"], 1)
        return {name: tf.ensure_shape(x, [share, max_seq_length]) for name, x in features.items()}

    dataset = dataset.map(parse, num_parallel_calls=2, deterministic=True)
    return without_autotuning(dataset.prefetch(READ_AHEAD))


def check_first_records(
    files: Sequence[str], max_seq_length: int, vocab_size: int | None = None, packed: bool = False
) -> int:
    """Returns the number of files with a record; InputError if a first record is invalid."""
    for file in filter(os.path.exists, files):  # local ones
        check_regular(file)
    first = tf.data.Dataset.from_tensor_slices(tf.constant(files, tf.string)).flat_map(
        lambda file: tf.data.TFRecordDataset(file).take(1)
    )
    number = 0
    with clear_read_errors(files):
        try:
            for serialized in without_autotuning(first.batch(256)):
                features = records.parse_examples(serialized, max_seq_length)
                records.value_checks(features, vocab_size, packed)
                number += len(serialized)
        except tf.errors.InvalidArgumentError as error:
            limits = (max_seq_length, vocab_size, packed)
            if len(files) > 1:  # find the file at fault
                return sum(check_first_records([file], *limits) for file in files)
            raise InputError(
                f"{files[0]}: the first record should have {', '.join(records.FEATURES)} of"
                f" max_seq_length={max_seq_length} values, with ids below vocab_size={vocab_size}."
                f" Received: {reason(error)}"
            ) from None
    return number


@contextlib.contextmanager
def clear_read_errors(files: Sequence[str]) -> Iterator[None]:
    """Names a damaged or missing file in an InputError, as TensorFlow does not name it."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.NotFoundError):
        for file in files:
            records.count_file(file)
        raise
    except tf.errors.InvalidArgumentError as error:  # of `records.value_checks` or of parsing
        if re.search(r"outside \[0, |Feature: |Key: |Could not parse example", str(error)) is None:
            raise
        folders = " or ".join(dict.fromkeys(map(os.path.dirname, files)))
        raise InputError(
            f"{folders}: a record does not fit the vocabulary or max_seq_length"
            f" ({reason(error).rpartition('MapV2: ')[2]})"
        ) from error

"""The TFRecord schema of pre-training examples: fast writing, reading and checking.

A record is a serialised `tf.train.Example` with three int64 lists of length S: `input_ids`
(padded with 0), `input_mask` (1 for tokens, 0 for padding) and `segment_ids` (1 for the second
segment and its [SEP]; 2 for <cls> at the end, as in XLNet's layout). These are ELECTRA's names and
types (google-research/electra, build_pretraining_dataset.py). In packed records, which ELECTRA does
not have, `input_mask` is the number of a token's sequence in its row, from 1.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import struct
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from convbert.common import files, storage
from convbert.common.errors import InputError, reason
from convbert.data.build_options import MAX_SEQUENCES
from convbert.data.streams import without_autotuning

FEATURES = ("input_ids", "input_mask", "segment_ids")

MOST_IDS = 1 << 21  # of three varint bytes; far above any vocabulary of pieces


# ---------------------------------------------------------------- writing


def encode_examples(
    input_ids: np.ndarray, input_mask: np.ndarray, segment_ids: np.ndarray
) -> list[bytes]:
    """Serialises N examples at once, integers [N, S], with the bytes of `tf.train.Example`.

    The protocol buffer library takes about 100 microseconds for an example of 128 tokens, which
    would be most of the builder's time; NumPy encodes the varints of a whole batch. ValueError for
    ids outside [0, 2**21).
    """
    N, S = input_ids.shape
    if N and not (input_ids.min() >= 0 and input_ids.max() < MOST_IDS):
        raise ValueError(f"ids should be in [0, {MOST_IDS}). Received: {input_ids}")

    payload, bounds = _varints(input_ids)
    parts = []  # the two entries whose varints are one byte each
    for name, values in (("input_mask", input_mask), ("segment_ids", segment_ids)):
        head = np.frombuffer(_entry_head(name, S), np.uint8)
        parts += [np.broadcast_to(head, [N, len(head)]), values.astype(np.uint8)]
    tails = np.concatenate(parts, axis=1)  # [N, bytes]
    tail_size, tail = tails.shape[1], tails.tobytes()
    return [
        _example_head(bounds[i + 1] - bounds[i], tail_size)
        + payload[bounds[i] : bounds[i + 1]]
        + tail[i * tail_size : (i + 1) * tail_size]
        for i in range(N)
    ]


def _varints(values: np.ndarray) -> tuple[bytes, list[int]]:
    """Returns the concatenated varints of the rows of `values` [N, S], and N + 1 row bounds."""
    values = values.astype(np.uint32)
    two, three = values >= 1 << 7, values >= 1 << 14
    encoded = np.empty([*values.shape, 3], np.uint8)  # [N, S, 3]: low seven bits first
    encoded[..., 0] = (values & 0x7F) | (two.astype(np.uint8) << 7)
    encoded[..., 1] = (values >> 7 & 0x7F) | (three.astype(np.uint8) << 7)
    encoded[..., 2] = values >> 14
    present = np.empty(encoded.shape, bool)
    present[..., 0], present[..., 1], present[..., 2] = True, two, three
    sizes = values.shape[1] + two.sum(axis=1) + three.sum(axis=1)  # [N]
    return encoded[present].tobytes(), [0, *np.cumsum(sizes).tolist()]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 1 << 7:
        out.append(value & 0x7F | 1 << 7)
        value >>= 7
    return bytes([*out, value])


def _delimited(field: int, size: int) -> bytes:
    """Returns the tag and length that precede a length-delimited field of `size` bytes."""
    return _varint(field << 3 | 2) + _varint(size)


def _entry_head(name: str, size: int) -> bytes:
    """Returns the head of a `Features` map entry with a packed int64 list of `size` bytes."""
    int64_list = _delimited(1, size)  # Int64List.value
    feature = _delimited(3, len(int64_list) + size) + int64_list  # Feature.int64_list
    key = _delimited(1, len(name)) + name.encode()
    body = key + _delimited(2, len(feature) + size) + feature
    return _delimited(1, len(body) + size) + body  # Features.feature


@functools.lru_cache(maxsize=65536)
def _example_head(input_ids_size: int, tail_size: int) -> bytes:
    head = _entry_head("input_ids", input_ids_size)
    return _delimited(1, len(head) + input_ids_size + tail_size) + head  # Example.features


def write_record_file(path: str, batches: Iterable[list[bytes]]) -> tuple[int, int]:
    """Writes lists of serialised examples to a TFRecord file, atomically.

    Returns the numbers of records and bytes. InputError if it cannot be written.
    """
    count = 0
    with files.replacing(path) as temporary:
        try:
            with tf.io.TFRecordWriter(temporary) as writer:
                for batch in batches:
                    for record in batch:
                        writer.write(record)
                    count += len(batch)
        except (OSError, tf.errors.OpError) as error:
            why = getattr(error, "strerror", None) or reason(error)
            raise InputError(f"{path}: cannot be written after {count} records: {why}") from error
    return count, storage.getsize(path)


# ---------------------------------------------------------------- reading and checking


def parse_examples(serialized: tf.Tensor, max_seq_length: int) -> dict[str, tf.Tensor]:
    """Parses serialised examples, string [B], into the three features, each int32 [B, S]."""
    schema = {name: tf.io.FixedLenFeature([max_seq_length], tf.int64) for name in FEATURES}
    parsed = tf.io.parse_example(serialized, schema)
    return {name: tf.cast(parsed[name], tf.int32) for name in FEATURES}


def value_checks(
    features: dict[str, tf.Tensor], vocab_size: int | None = None, packed: bool = False
) -> list[tf.Tensor]:
    """Returns assertions that ids are in [0, vocab_size) and other features in range."""
    limits = {"input_ids": vocab_size or tf.int32.max, "segment_ids": 3}  # 2: see above
    limits["input_mask"] = MAX_SEQUENCES + 1 if packed else 2
    checks = []
    for name, limit in limits.items():
        unsigned = tf.bitcast(features[name], tf.uint32)  # one comparison: negatives are large
        inside = tf.reduce_all(unsigned < tf.constant(limit, tf.uint32))
        checks.append(tf.debugging.Assert(inside, [f"{name} outside [0, {limit})"]))
    return checks


def record_dataset(path: tf.Tensor) -> tf.data.Dataset:
    """The serialised examples of a file; UnknownError while iterating if `check_lengths` fails."""
    checked = tf.numpy_function(_checked, [path], tf.string)
    return tf.data.TFRecordDataset(checked, buffer_size=1 << 18)


def _checked(path: bytes) -> bytes:
    try:
        check_lengths(path.decode())
    except InputError as error:  # a ValueError, which would be the graph's error of a wrong record
        raise RuntimeError(error) from None
    return path


def check_lengths(path: str, count: int | None = None) -> None:
    """InputError if one of the first `count` records (default: all) ends outside its local file.

    A record begins with its length, and TensorFlow takes that memory before it reads: a false
    length would crash the process. Takes a second for two million records.
    """
    if storage.is_url(path):
        return
    place, length = 0, struct.Struct("<Q")
    if os.path.exists(path):
        files.check_regular(path)
    with contextlib.suppress(FileNotFoundError), open(path, "rb", buffering=1 << 18) as file:
        size = os.fstat(file.fileno()).st_size
        for _ in range(count) if count is not None else itertools.count():
            if place == size:
                return
            file.seek(place)
            head = file.read(length.size)
            place += 16 + length.unpack(head)[0] if len(head) == length.size else size
            if place > size:
                raise InputError(f"{path}: truncated or corrupt: a record should end in the file")


def count_file(path: str) -> int:
    """Counts the records of a file by reading it; InputError if it is damaged."""
    check_lengths(path)
    try:
        return int(_count(tf.constant(os.fspath(path))))
    except (tf.errors.NotFoundError, tf.errors.DataLossError) as error:
        raise InputError(f"{path}: missing, truncated or corrupt: {reason(error)}") from None


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])  # traced once, not per file
def _count(path: tf.Tensor) -> tf.Tensor:
    batches = tf.data.TFRecordDataset(path, buffer_size=1 << 20).batch(2048)
    return without_autotuning(batches).reduce(
        np.int64(0), lambda n, batch: n + tf.size(batch, tf.int64)
    )

"""The TFRecord schema of pre-training examples: fast writing, reading and checking.

A record is a serialised `tf.train.Example` with three int64 lists of length S: `input_ids`
(padded with [PAD]), `input_mask` (1 for tokens, 0 for padding) and `segment_ids` (1 for the second
segment and its [SEP]; 2 for <cls> at the end, as in XLNet's layout). These are ELECTRA's names and
types (google-research/electra, build_pretraining_dataset.py). In packed records, which ELECTRA does
not have, `input_mask` is the number of a token's sequence in its row, from 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from convbert.common import files, storage
from convbert.common.errors import InputError, reason
from convbert.data.build_options import MAX_SEQUENCES
from convbert.data.streams import without_autotuning

FEATURES = ("input_ids", "input_mask", "segment_ids")


def encode_examples(
    input_ids: np.ndarray, input_mask: np.ndarray, segment_ids: np.ndarray
) -> list[bytes]:
    """Serialises N examples at once, integers [N, S], with the bytes of `tf.train.Example`.

    Building one message at a time takes about five times as long.
    """
    N, S = input_ids.shape
    columns = np.stack([input_ids, input_mask, segment_ids], axis=1)  # [N, 3, S]
    lists = _encoded("Int64List", [S], value=columns.reshape(-1, S).astype(np.int64))  # [N * 3]
    features = _encoded("Feature", [1], int64_list=lists[:, None])
    names = tf.tile(FEATURES, [N])
    entries = _encoded("Features.FeatureEntry", [1, 1], key=names[:, None], value=features[:, None])
    maps = _encoded("Features", [len(FEATURES)], feature=tf.reshape(entries, [N, len(FEATURES)]))
    return _encoded("Example", [1], features=maps[:, None]).numpy().tolist()


def _encoded(message: str, counts: list[int], **fields: tf.Tensor) -> tf.Tensor:
    """Encodes messages of a type of TensorFlow's: string [n], from fields [n, count]."""
    n = len(next(iter(fields.values())))
    return tf.raw_ops.EncodeProto(
        sizes=tf.tile([counts], [n, 1]),
        values=list(fields.values()),
        field_names=list(fields),
        message_type=f"tensorflow.{message}",
    )


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


def count_file(path: str) -> int:
    """Counts the records of a file by reading it; InputError if it is damaged."""
    if storage.exists(path):
        files.check_regular(path)
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

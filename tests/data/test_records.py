"""The serialisation of batches equals the protocol buffer library's, field by field."""

import os

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.data import input_pipeline, records


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


def test_an_empty_batch_and_an_empty_file(tmp_path):
    empty = np.zeros([0, 4], int)
    assert records.encode_examples(empty, empty, empty) == []
    path = str(tmp_path / "empty")
    assert records.write_record_file(path, []) == (0, 0)
    assert records.count_file(path) == 0
    assert input_pipeline.check_first_records([path], 4) == 0


def test_a_failed_write_leaves_nothing(tmp_path):
    path = str(tmp_path / "records")

    def batches():
        yield [b"first"]
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError):
        records.write_record_file(path, batches())
    assert os.listdir(tmp_path) == []
    with pytest.raises(InputError):
        records.write_record_file(str(tmp_path / "no" / "folder"), [[b"x"]])

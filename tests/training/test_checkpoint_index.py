"""Indices of checkpoints from strangers: an error before TensorFlow reads them."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

from convbert.checkpoints.tf1_file import TensorFile
from convbert.common.errors import InputError
from convbert.training import checkpoint_index
from convbert.training.checkpoint_index import check_index
from convbert.training.checkpointing import damage

FLOAT, STRING, RESOURCE = 1, 7, 20


def varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head, number = head + bytes([number & 127 | 128]), number >> 7
    return head + bytes([number])


def table(items: dict[bytes, bytes]) -> bytes:
    """A table of one block, as TensorFlow writes it, but for its checksums."""

    def block(items):
        entries = (
            varint(0) + varint(len(name)) + varint(len(value)) + name + value
            for name, value in items.items()
        )
        return b"".join(entries) + bytes(4) + (1).to_bytes(4, "little")

    parts, places = b"", []
    for of in (items, {}):
        places.append(varint(len(parts)) + varint(len(block(of))))
        parts += block(of) + bytes(5)
    index = block({b"\xff": places[0]})
    footer = places[1] + varint(len(parts)) + varint(len(index))
    return parts + index + bytes(5) + footer.ljust(40, b"\0") + checkpoint_index._MAGIC


def write(prefix, dtype=FLOAT, dims=(4,), offset=0, size=16, shard=0):
    """A checkpoint of one tensor in 16 bytes."""
    entry = BundleEntryProto(dtype=dtype, offset=offset, size=size, shard_id=shard)
    for of in dims:
        entry.shape.dim.add(size=of)
    header = BundleHeaderProto(num_shards=1).SerializeToString()
    with open(f"{prefix}.index", "wb") as file:
        file.write(table({b"": header, b"w": entry.SerializeToString()}))
    with open(f"{prefix}.data-00000-of-00001", "wb") as file:
        file.write(bytes(16))


CHANGES = [{"dims": of} for of in ((-5,), (2**40, 2**40), (3,))]
CHANGES += [{"dims": (2**28,), "size": 2**30}, {"dims": (2**28,), "dtype": STRING}]
CHANGES += [{"dtype": RESOURCE}, {"dtype": 999}, {"offset": 2**62}, {"offset": -4}, {"shard": 1}]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_what_would_end_the_process_or_take_memory(tmp_path, changes):
    prefix = str(tmp_path / "c")
    write(prefix)
    check_index(prefix)
    write(prefix, **changes)
    assert prefix in damage(prefix)
    with pytest.raises(InputError, match=prefix):
        TensorFile(prefix)


@pytest.mark.parametrize("content", [b"", bytes(100), b"\xff" * 48 + checkpoint_index._MAGIC])
def test_no_table(tmp_path, content):
    (tmp_path / "c.index").write_bytes(content)
    with pytest.raises(InputError, match=r"c\.index"):
        check_index(str(tmp_path / "c"))


def test_what_tensorflow_writes(tmp_path):
    """Long names with common beginnings, in several blocks; and a partitioned variable."""
    many = {f"network/layer_{i}/kernel": tf.Variable(np.ones([i % 3, 2])) for i in range(2000)}
    checkpoint = tf.train.Checkpoint(**{n.replace("/", "."): v for n, v in many.items()})
    path = checkpoint.save(str(tmp_path / "c"))
    names = {
        name.decode()
        for name, _ in checkpoint_index._entries(pathlib.Path(f"{path}.index").read_bytes())
    } - {""}
    assert names == {name for name, _ in tf.train.list_variables(path)}
    assert damage(path) is None
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        parts = tf.compat.v1.fixed_size_partitioner(3)
        tf.compat.v1.get_variable("w", [7, 2], partitioner=parts, use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        prefix = tf.compat.v1.train.Saver().save(session, str(tmp_path / "parts"))
    assert TensorFile(prefix).read("w").shape == (7, 2)
    os.truncate(f"{prefix}.index", 60)
    with pytest.raises(InputError):
        TensorFile(prefix)

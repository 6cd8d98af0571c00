"""The index of a TensorFlow checkpoint, checked before TensorFlow reads it.

TensorFlow ends the process, or takes any memory, where shapes and types are not those of a
checkpoint that it wrote. `PREFIX.index` is a table (tensorflow/core/lib/io/format.h) of names and
`BundleEntryProto`, uncompressed (tensorflow/core/util/tensor_bundle).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

from convbert.common import files, storage
from convbert.common.errors import InputError

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48  # bytes at the end: two places of blocks, and the magic number
_SIZES = dict.fromkeys(("INT8", "UINT8", "BOOL", "STRING"), 1)  # of a string: its length
_SIZES |= dict.fromkeys(("HALF", "BFLOAT16", "INT16", "UINT16"), 2)
_SIZES |= dict.fromkeys(("FLOAT", "INT32", "UINT32"), 4)
_SIZES |= dict.fromkeys(("DOUBLE", "INT64", "UINT64"), 8)
_BYTES = {types_pb2.DataType.Value(f"DT_{name}"): size for name, size in _SIZES.items()}


def check_index(prefix: str) -> None:
    """InputError unless the tensors of a checkpoint lie within its data files."""
    path = f"{prefix}.index"
    content = files.read_bytes(path)
    try:
        entries = dict(_entries(content))
        header = BundleHeaderProto.FromString(entries.pop(b"", b""))
        sizes: dict[int, int] = {}
        for name, value in entries.items():
            _check_entry(name, BundleEntryProto.FromString(value), prefix, header, sizes)
    except (DecodeError, IndexError, ValueError) as error:
        reason = str(error) or "it is damaged"
        raise InputError(f"{path}: should be an index of a checkpoint ({reason})") from error


def _check_entry(
    name: bytes,
    entry: BundleEntryProto,
    prefix: str,
    header: BundleHeaderProto,
    sizes: dict[int, int],
) -> None:
    """ValueError where an entry states another size than its data has; `sizes` keeps files'."""
    where, dims = name.decode("utf-8", "replace"), [dim.size for dim in entry.shape.dim]
    if entry.dtype not in _BYTES or entry.shape.unknown_rank or min(dims, default=0) < 0:
        raise ValueError(f"{where}: type {entry.dtype}, shape {dims}")
    if not 0 <= entry.shard_id < header.num_shards:
        raise ValueError(f"{where}: file {entry.shard_id} of {header.num_shards}")
    if entry.shard_id not in sizes:
        path = f"{prefix}.data-{entry.shard_id:05d}-of-{header.num_shards:05d}"
        if not storage.exists(path):
            raise ValueError(f"{os.path.basename(path)} is missing")
        sizes[entry.shard_id] = storage.getsize(path)
    least = math.prod(dims) * _BYTES[entry.dtype]
    if entry.slices:  # of a partitioned variable, whose parts are entries of their own
        inside = least <= 8 * header.num_shards * max(sizes.values())
    else:
        exact = entry.dtype == types_pb2.DT_STRING or entry.size == least
        inside = exact and least <= entry.size
        inside = inside and 0 <= entry.offset <= sizes[entry.shard_id] - entry.size
    if not inside:
        raise ValueError(f"{where}: {dims}, {entry.size} bytes, beyond the data")


def _entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the names and values of a table; IndexError and ValueError if it is none."""
    footer = content[-_FOOTER:]
    if len(footer) < _FOOTER or not footer.endswith(_MAGIC):
        raise ValueError("no table")
    place = 0
    for _ in range(2):  # of the meta index, which is empty, and of the index of blocks
        start, place = _varint(footer, place)
        size, place = _varint(footer, place)
    for _, value in _block(content, start, size):
        start, place = _varint(value, 0)
        yield from _block(content, start, _varint(value, place)[0])


def _block(content: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block; a key begins with a part of the key before."""
    end = start + size
    if size < 4 or end >= len(content) or content[end] != 0:
        raise ValueError("a block is outside of the file, or compressed")
    entries = content[start : end - 4 - 4 * int.from_bytes(content[end - 4 : end], "little")]
    place, key = 0, b""
    while place < len(entries):
        shared, place = _varint(entries, place)
        added, place = _varint(entries, place)
        length, place = _varint(entries, place)
        key = key[:shared] + entries[place : place + added]
        place += added + length
        if place > len(entries):
            raise ValueError("an entry ends outside of its block")
        yield key, entries[place - length : place]


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Returns a number of seven bits a byte, the low ones first, and the place after it."""
    value = shift = 0
    while shift < 64:
        byte = content[place]
        place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, place
    raise ValueError("a number has more than 64 bits")

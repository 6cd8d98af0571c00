"""Safetensors files, single or sharded, as float32 arrays by name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convbert.checkpoints.huggingface.config import TIED
from convbert.checkpoints.slots import Slot
from convbert.common import files, storage
from convbert.common.errors import InputError

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_PICKLE = "pytorch_model.bin"
# Types, and their conversion.
_DTYPES = {"F32": "", "F16": "read as", "BF16": "read as", "F64": "rounded to"}
# Old files have TensorFlow's names of layer norm weights.
_RENAMED = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class TensorFiles:
    """The tensors of `model.safetensors`, or of the shards of its index; see `slots.Tensors`.

    `extra` is an optional further file.
    """

    def __init__(self, folder: str, extra: str | None = None):
        self.where = folder
        self.shapes: dict[str, Sequence[int]] = {}
        self._stored: dict[str, tuple[Any, str, str]] = {}  # open file, stored name, type
        self._copies = tempfile.TemporaryDirectory()  # local copies of URLs
        for path in _weight_files(folder):
            self._open(path)
        if extra and storage.exists(os.path.join(folder, extra)):
            self._open(os.path.join(folder, extra))

    def read(self, name: str) -> np.ndarray:
        """Returns the tensor as float32: widens float16 and bfloat16, rounds float64."""
        import ml_dtypes  # noqa: F401  registers bfloat16 in NumPy

        file, stored, dtype = self._stored[name]
        if dtype not in _DTYPES:
            expected = " or ".join(_DTYPES)
            raise InputError(
                f"{self.where}: {stored} should be of type {expected}. Received: {dtype}"
            )
        return file.get_tensor(stored).astype(np.float32)

    def tied(self, copies: Mapping[str, str], fields: Mapping[str, Any]) -> bool:
        """Returns True if the output layer is the word embeddings, as far as files show.

        `copies` maps tensors to those that they copy; without copied weights, `config.json` counts.
        """
        there = {copy: name for copy, name in copies.items() if copy in self.shapes}
        if not any(copy.endswith("weight") for copy in there):
            return fields.get(TIED, True) is not False
        return all(self.equal(copy, self, name) for copy, name in there.items())

    def equal(self, name: str, other: TensorFiles, other_name: str) -> bool:
        """Returns True if both have such a tensor, of the same values to the bit."""
        if name not in self.shapes or other_name not in other.shapes:
            return False
        return np.array_equal(self.read(name), other.read(other_name))

    def notes(self) -> list[str]:
        """Returns a note for each type of tensors other than float32."""
        types = [dtype for _, _, dtype in self._stored.values()]
        return [
            f"{self.where}: {types.count(dtype)} tensors of type {dtype} are {how} float32"
            for dtype, how in _DTYPES.items()
            if dtype in types and how
        ]

    def _open(self, path: str) -> None:
        from safetensors import SafetensorError, safe_open

        files.check_regular(path)
        try:
            file = safe_open(storage.download(path, self._copies.name), framework="np")
            for stored in file.keys():  # noqa: SIM118  not a dict
                name, tensor = stored, file.get_slice(stored)
                for old, new in _RENAMED.items():
                    name = name.replace(old, new)
                if name in self.shapes:
                    other = self._stored[name][1]
                    raise InputError(f"{path}: {stored} occurs twice, also as {other}")
                self.shapes[name] = tensor.get_shape()
                self._stored[name] = file, stored, tensor.get_dtype()
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path}: cannot be read; it may be truncated ({error})") from error


def write_tensors(path: str, slots: Mapping[str, Slot]) -> None:
    """Writes a safetensors file that transformers reads."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors = {name: slot.tensor() for name, slot in slots.items()}
    try:
        # Older versions of transformers reject files without a format.
        save_file(tensors, path, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be written ({error})") from error


def _weight_files(folder: str) -> list[str]:
    whole, index = (os.path.join(folder, name) for name in (WEIGHTS_FILE, INDEX_FILE))
    if storage.exists(whole):
        return [whole]
    if not storage.exists(index):
        expected = f"there should be a {WEIGHTS_FILE} or a {INDEX_FILE}"
        if storage.exists(os.path.join(folder, _PICKLE)):
            expected += f"; {_PICKLE} is not read, as it could run any program: load it with"
            expected += " transformers and torch, and save it with save_pretrained"
        raise InputError(f"{folder}: {expected}")
    shard_of = files.read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise InputError(f"{index}: `weight_map` should map tensors to files")
    shards = sorted(set(map(str, shard_of.values())))
    for shard in shards:
        if os.path.basename(shard) != shard or not storage.isfile(os.path.join(folder, shard)):
            raise InputError(f"{index}: the shard {shard} should be next to it, but is missing")
    return [os.path.join(folder, shard) for shard in shards]

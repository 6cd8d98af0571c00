"""Safetensors files, one or several that belong together, as float32 arrays by name."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

import files
import storage
from errors import InputError

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# And what is done with them.
_DTYPES = {"F32": "", "F16": "read as", "BF16": "read as", "F64": "rounded to"}
# Old files have TensorFlow's names of a layer norm's weights.
_RENAMED = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class TensorFiles:
    """The tensors of `model.safetensors`, or of the shards that its index lists.

    See `checkpoints.slots.Tensors`. Only names and shapes are read before `read` is called.

    Args:
        folder: as `save_pretrained` writes it.
        extra: a file beside these that holds some more tensors, if it is there.
    """

    def __init__(self, folder: str, extra: str | None = None):
        self.where, self.shapes = folder, {}
        self._stored: dict[str, tuple[Any, str]] = {}  # open file, name in it
        self._copies = tempfile.TemporaryDirectory()  # of URLs, as long as this object is there
        for path in _weight_files(folder):
            self._open(path)
        if extra and storage.exists(os.path.join(folder, extra)):
            self._open(os.path.join(folder, extra))

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32: float16 and bfloat16 are widened, float64 is rounded."""
        import ml_dtypes  # noqa: F401  numpy knows bfloat16 by it

        if name not in self._stored:
            raise InputError(f"{self.where}: the tensor {name} is missing")
        file, stored = self._stored[name]
        if (dtype := self._dtype(name)) not in _DTYPES:
            raise InputError(
                f"{self.where}: {stored} should be of type {', '.join(_DTYPES)}. Received: {dtype}"
            )
        return file.get_tensor(stored).astype(np.float32)

    def notes(self) -> list[str]:
        """Returns a note for each type of tensors but float32."""
        types = [self._dtype(name) for name in self.shapes]
        return [
            f"{self.where}: {types.count(dtype)} tensors of type {dtype} are {how} float32"
            for dtype, how in _DTYPES.items()
            if dtype in types and how
        ]

    def _dtype(self, name: str) -> str:
        file, stored = self._stored[name]
        return file.get_slice(stored).get_dtype()

    def _open(self, path: str) -> None:
        from safetensors import SafetensorError, safe_open

        files.check_regular(path)
        try:
            file = safe_open(storage.download(path, self._copies.name), framework="np")
            for stored in file.keys():  # noqa: SIM118  it is no dict
                name = stored
                for old, new in _RENAMED.items():
                    name = name.replace(old, new)
                if name in self.shapes:
                    other = self._stored[name][1]
                    raise InputError(f"{path}: {stored} is there twice, also as {other}")
                self.shapes[name] = file.get_slice(stored).get_shape()
                self._stored[name] = file, stored
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"{path}: not a readable safetensors file ({error}); it may be cut off"
            ) from error


def write_tensors(path: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes a safetensors file that transformers reads."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        # Older versions of transformers reject a file that does not say what wrote it.
        save_file(tensors, path, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be written ({error})") from error


def _weight_files(folder: str) -> list[str]:
    whole, index = (os.path.join(folder, name) for name in (WEIGHTS_FILE, INDEX_FILE))
    if storage.exists(whole):
        return [whole]
    if not storage.exists(index):
        raise InputError(_no_weights(folder))
    shard_of = files.read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise InputError(f"{index}: `weight_map` should map tensors to files")
    shards = sorted(set(map(str, shard_of.values())))
    for shard in shards:
        if os.path.basename(shard) != shard or not storage.isfile(os.path.join(folder, shard)):
            raise InputError(f"{index}: the shard {shard} should be beside it; it is not there")
    return [os.path.join(folder, shard) for shard in shards]


def _no_weights(folder: str) -> str:
    pickles = [name for name in _PICKLES if storage.exists(os.path.join(folder, name))]
    if not pickles:
        return f"{folder}: there should be a {WEIGHTS_FILE} or a {INDEX_FILE}"
    return (
        f"{folder}: its weights are pickled ({pickles[0]}), and a pickle may run any program when"
        " it is read, so it is not read here; where transformers and torch are installed,"
        " CLASS.from_pretrained(FOLDER).save_pretrained(OTHER_FOLDER), CLASS being what"
        f" `architectures` of its config.json says, writes it as {WEIGHTS_FILE}"
    )

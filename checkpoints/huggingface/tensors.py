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


class TensorFiles:
    """The tensors of `model.safetensors`, or of the shards that its index lists.

    Only names and `shapes` are read before `read` is called.

    Args:
        folder: as `save_pretrained` writes it.
        extra: files beside these that hold some more tensors, where they are there.

    Raises:
        InputError: no such file, a shard is missing, or one cannot be read.
    """

    def __init__(self, folder: str, extra: tuple[str, ...] = ()):
        self._files: dict[str, Any] = {}  # path -> open file
        self._copies = tempfile.TemporaryDirectory()  # of URLs, as long as this object is there
        self._path_of: dict[str, str] = {}
        self.shapes: dict[str, list[int]] = {}
        if not storage.exists(os.path.join(folder, WEIGHTS_FILE)):
            self._open_shards(folder)
        for path in (os.path.join(folder, name) for name in (WEIGHTS_FILE, *extra)):
            if storage.exists(path):
                self._open(path)

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32; float16 and bfloat16 are widened, which changes no value.

        float64 is rounded.

        Raises:
            InputError: it is of another type, cannot be read, or a value is not finite.
        """
        import ml_dtypes  # noqa: F401  numpy knows bfloat16 by it

        path = self._path_of[name]
        dtype = self._files[path].get_slice(name).get_dtype()
        if dtype not in _DTYPES:
            raise InputError(
                f"{path}: {name} should be of type {', '.join(_DTYPES)}. Received: {dtype}"
            )
        tensor = self._files[path].get_tensor(name).astype(np.float32)
        wrong = np.argwhere(~np.isfinite(tensor))
        if len(wrong):
            raise InputError(
                f"{path}: {name} should be finite. Received: {tensor[tuple(wrong[0])]} at"
                f" {wrong[0].tolist()}, {len(wrong)} such values"
            )
        return tensor

    def notes(self) -> list[str]:
        """Returns a note for each tensor that is not float32."""
        types = [
            self._files[path].get_slice(name).get_dtype() for name, path in self._path_of.items()
        ]
        return [
            f"{types.count(dtype)} tensors of type {dtype} are {how} float32"
            for dtype, how in _DTYPES.items()
            if dtype in types and how
        ]

    def _open_shards(self, folder: str) -> None:
        index = os.path.join(folder, INDEX_FILE)
        if not storage.exists(index):
            raise InputError(_no_weights(folder))
        shard_of = files.read_json(index).get("weight_map")
        if not isinstance(shard_of, dict) or not shard_of:
            raise InputError(f"{index}: `weight_map` should map tensors to files")
        for shard in sorted(set(map(str, shard_of.values()))):
            path = os.path.join(folder, shard)
            if os.path.basename(shard) != shard or not storage.isfile(path):
                raise InputError(f"{index}: the shard {shard} should be beside it; it is not there")
            self._open(path)

    def _open(self, path: str) -> None:
        from safetensors import SafetensorError, safe_open

        files.check_regular(path)
        try:
            local = storage.download(path, self._copies.name)
            self._files[path] = opened = safe_open(local, framework="np")
            for name in opened.keys():  # noqa: SIM118  it is no dict
                if name in self.shapes:
                    raise InputError(f"{path}: {name} is in {self._path_of[name]} too")
                self.shapes[name] = list(opened.get_slice(name).get_shape())
                self._path_of[name] = path
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"{path}: not a readable safetensors file ({error}); it may be cut off"
            ) from error


def write_tensors(path: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes a safetensors file that transformers reads; InputError when that cannot be done."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        # Older versions of transformers reject a file that does not say what wrote it.
        save_file(tensors, path, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be written ({error})") from error


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

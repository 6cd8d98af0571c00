"""Encoded splits on disk, found again only by everything that shapes them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable

import numpy as np
from absl import logging

import storage
from data.manifest import package_version
from errors import InputError
from files import replacing
from finetune.encoded import Encoded
from training import workers

# To be raised by whoever changes what a `Kind.encode` makes of the same input.
FORMAT_VERSION = 3


def load_or_encode(cache_dir: str, key_parts: dict, encode: Callable[[], Encoded]) -> Encoded:
    """Reads what was encoded under the same key, or encodes and keeps it.

    A file that cannot be read, whatever the reason, is made anew. Where nothing can be written,
    training continues without. Every file in `cache_dir`, which is made if missing, can be deleted
    at any time. `key_parts` is everything that shapes the result, as JSON values.
    """
    versions = {
        "format_version": FORMAT_VERSION,
        "tensorflow_text": package_version("tensorflow-text"),
    }
    key = json.dumps({**key_parts, **versions}, sort_keys=True)
    path = os.path.join(cache_dir, hashlib.sha256(key.encode()).hexdigest() + ".npz")
    if storage.exists(path):
        try:
            return _read(path, key)
        except Exception as error:  # any damage to a zip file of arrays has an error of its own
            logging.warning("%s: encoded again, because it is damaged: %s", path, error)
    encoded = encode()
    if not workers.is_chief():
        return encoded
    try:
        _write(path, encoded, key)
    except (OSError, InputError) as error:
        logging.warning("not kept for the next run: %s", error)
    return encoded


def _write(path: str, encoded: Encoded, key: str) -> None:
    storage.makedirs(os.path.dirname(path))
    arrays = {
        "key": np.array(key),
        "row_splits": encoded.row_splits,
        "truncated": np.array(encoded.truncated),
        **{f"tokens/{name}": column for name, column in encoded.tokens.items()},
        **{f"rows/{name}": column for name, column in encoded.sequences.items()},
    }
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def _read(path: str, key: str) -> Encoded:
    # The zip format has checksums.
    with storage.open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        if arrays["key"] != key:
            raise ValueError("it was made under another key")
        encoded = Encoded(
            arrays["row_splits"],
            _columns(arrays, "tokens/"),
            _columns(arrays, "rows/"),
            int(arrays["truncated"]),
        )
    lengths = {len(column) for column in encoded.tokens.values()}
    counts = {len(column) for column in encoded.sequences.values()}
    if lengths != {encoded.row_splits[-1]} or counts != {len(encoded)}:
        raise ValueError("its columns are of different lengths")
    return encoded


def _columns(arrays: np.lib.npyio.NpzFile, prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}

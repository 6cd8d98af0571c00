"""LiteRT files of export_savedmodel.py: where they are, and what is attached to them.

Needs neither TensorFlow nor LiteRT; serving/litert_model.py computes.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile

import storage
from data.vocabulary import MODEL_FILE as SENTENCEPIECE_FILE
from data.vocabulary import SWITCHES_FILE, VOCABULARY_FILE
from errors import InputError
from files import check_regular
from model.config import CONFIG_FILE

MODEL_FILE = "model.tflite"
DESCRIPTION_FILE = "model.json"  # among what is attached
_ATTACHED = (DESCRIPTION_FILE, CONFIG_FILE, SWITCHES_FILE, VOCABULARY_FILE, SENTENCEPIECE_FILE)
_LARGEST = 2**25  # bytes of an attached file
_BLOCK = 2**20


def litert_file(path: str) -> str | None:
    """The path itself where it is of a LiteRT file, or that of the one in a folder; else None."""
    if path.endswith(".tflite") and not storage.isdir(path):
        return path
    inside = os.path.join(path, MODEL_FILE)
    return inside if storage.exists(inside) else None


def attach(model: bytes, folder: str) -> bytes:
    """A LiteRT model with the files of a folder behind it, as a zip archive.

    LiteRT does not read beyond the model, and `unzip` finds the archive by the end of the file;
    TensorFlow Lite's metadata has its associated files in the same place.
    """
    stream = io.BytesIO(model)
    with zipfile.ZipFile(stream, "a") as archive:
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                archive.writestr(zipfile.ZipInfo(name), file.read())
    return stream.getvalue()


def attached(path: str) -> dict[str, bytes]:
    """The files behind a LiteRT model, by name."""
    check_regular(path)
    try:
        with storage.open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
            found: dict[str, bytes] = {}
            for item in archive.infolist():
                stored = item.compress_type == zipfile.ZIP_STORED
                size = max(item.file_size, item.compress_size)
                known = item.filename in _ATTACHED and item.filename not in found
                if not known or not stored or size > _LARGEST:
                    raise InputError(
                        f"{path}: the files behind the model should be {', '.join(_ATTACHED)}, each"
                        f" once, not compressed, of at most {_LARGEST:,} bytes. Received:"
                        f" {item.filename!r} of {size:,} bytes"
                    )
                found[item.filename] = archive.read(item)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, RuntimeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: has no description; is it of export_savedmodel.py?") from error
    return found


def graph_digest(path: str) -> str:
    """SHA-256 of a LiteRT model without the files behind it, which `attached` has read."""
    digest = hashlib.sha256()
    with storage.open(path, "rb") as stream:
        with zipfile.ZipFile(stream) as archive:
            left = min(item.header_offset for item in archive.infolist())
        stream.seek(0)
        while left and (block := stream.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()

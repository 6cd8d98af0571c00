"""LiteRT files of export_savedmodel.py: where they are, and what is attached to them.

Needs neither TensorFlow nor LiteRT; serving/litert_model.py computes.
"""

from __future__ import annotations

import io
import os
import zipfile

import storage
from errors import InputError

MODEL_FILE = "model.tflite"
DESCRIPTION_FILE = "model.json"  # among what is attached


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
    """The files behind a LiteRT model, by name.

    Raises:
        InputError: there is no such file, or it has no files behind it.
    """
    try:
        with storage.open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: has no description; is it of export_savedmodel.py?") from error
    return found

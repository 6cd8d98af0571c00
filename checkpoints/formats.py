"""The foreign formats by name, and a conversion from or to one of them."""

from __future__ import annotations

import importlib

import storage
from checkpoints import FORMATS, model_directory
from checkpoints.model_directory import Options
from files import new_folder


def from_elsewhere(source: str, path: str, output: str, options: Options) -> list[str]:
    """Makes a model directory of a foreign checkpoint; the folder `output` is written atomically.

    Returns:
        Notes: all that was inferred or left out.

    Raises:
        InputError: the checkpoint cannot be read, or is of another architecture; or there is
            something at `output`.
    """
    with new_folder(output) as folder:
        conversion = importlib.import_module(FORMATS[source]).read(path, options)
        about = {"source": source, "input": storage.abspath(path), "notes": conversion.notes}
        about["max_seq_length"] = conversion.trained_length
        model_directory.save(conversion, folder, about)
    return conversion.notes


def to_elsewhere(target: str, path: str, output: str) -> list[str]:
    """Makes a foreign checkpoint of a model directory; the inverse of `from_elsewhere`."""
    with new_folder(output) as folder:
        conversion = model_directory.load(path)
        notes = importlib.import_module(FORMATS[target]).write(conversion, folder)
    return [*conversion.notes, *notes]

"""The foreign formats by name, and a conversion from or to one of them."""

from __future__ import annotations

import importlib

import storage
from checkpoints import FORMATS, model_directory, xlnet
from checkpoints.model_directory import Options
from errors import InputError
from files import new_folder
from finetune.load import load_fine_tuned
from model.xlnet.config import XLNetConfig
from pretrain.load import is_fine_tuned

# Options that are not for every model; an XLNet takes none of them.
_OPTIONS = {"tf1": ("model_size",), "huggingface": ("generator", "task")}


def from_elsewhere(source: str, path: str, output: str, options: Options) -> list[str]:
    """Makes a model directory of a foreign checkpoint; the folder `output` is written atomically.

    Returns:
        Notes: all that was inferred or left out.

    Raises:
        InputError: the checkpoint cannot be read, or is of another architecture; or there is
            something at `output`.
    """
    with new_folder(output) as folder:
        of_xlnet = importlib.import_module(xlnet.FORMATS[source])
        ours = not of_xlnet.recognizes(path, options)
        module = importlib.import_module(FORMATS[source]) if ours else of_xlnet
        takes = _OPTIONS[source] if ours else ()
        for name in ("generator", "model_size", "task"):
            if getattr(options, name) is not None and name not in takes:
                raise InputError(f"--{name} does not belong to such a model; see --help")
        about = {"source": source, "input": storage.abspath(path)}
        if options.task is not None:
            model, notes = module.read_fine_tuned(path, options)
            model_directory.save_fine_tuned(model, folder, {**about, "notes": notes})
            return notes
        conversion = module.read(path, options)
        about["notes"] = conversion.notes
        about["max_seq_length"] = conversion.trained_length
        model_directory.save(conversion, folder, about)
    return conversion.notes


def to_elsewhere(target: str, path: str, output: str) -> list[str]:
    """Makes a foreign checkpoint of a model directory; the inverse of `from_elsewhere`."""
    with new_folder(output) as folder:
        write = getattr(importlib.import_module(FORMATS[target]), "write_fine_tuned", None)
        if write is not None and is_fine_tuned(path):
            notes = write(load_fine_tuned(path), folder)
            if notes is not None:
                return notes
        conversion = model_directory.load(path)
        is_xlnet = isinstance(conversion.config, XLNetConfig)
        module = importlib.import_module((xlnet.FORMATS if is_xlnet else FORMATS)[target])
        notes = module.write(conversion, folder)
    return [*conversion.notes, *notes]

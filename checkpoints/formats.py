"""The foreign formats by name, and a conversion from or to one of them."""

from __future__ import annotations

import storage
from checkpoints import huggingface, model_directory, tf1_convert
from checkpoints.model_directory import Options
from checkpoints.xlnet import huggingface as xlnet_huggingface
from checkpoints.xlnet import tf1 as xlnet_tf1
from errors import InputError
from files import new_folder
from finetune.load import load_fine_tuned
from model.xlnet.config import XLNetConfig
from pretrain.load import is_fine_tuned

# Modules with read(path, options) -> Conversion and write(conversion, folder) -> notes.
_MODULES = {"tf1": tf1_convert, "huggingface": huggingface}
_OF_XLNET = {"tf1": xlnet_tf1, "huggingface": xlnet_huggingface}
# Options that are not for every model; an XLNet takes none of them.
_OPTIONS = {"tf1": ("model_size",), "huggingface": ("generator", "task")}


def from_elsewhere(source: str, path: str, output: str, options: Options) -> list[str]:
    """Makes a model directory of a foreign checkpoint; the folder `output` is written atomically.

    Returns notes on all that was inferred or left out.
    """
    with new_folder(output) as folder:
        is_xlnet = _OF_XLNET[source].find_config(path, options.config) is not None
        module = (_OF_XLNET if is_xlnet else _MODULES)[source]
        for name in ("generator", "model_size", "task"):
            takes = not is_xlnet and name in _OPTIONS[source]
            if getattr(options, name) is not None and not takes:
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
        if target == "huggingface" and is_fine_tuned(path):
            notes = huggingface.write_fine_tuned(load_fine_tuned(path), folder)
            if notes is not None:
                return notes
        conversion = model_directory.load(path)
        is_xlnet = isinstance(conversion.config, XLNetConfig)
        notes = (_OF_XLNET if is_xlnet else _MODULES)[target].write(conversion, folder)
    return [*conversion.notes, *notes]

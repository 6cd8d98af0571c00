"""Foreign formats by name, and conversions from and to them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from convbert.checkpoints import huggingface, model_directory, tf1, xlnet
from convbert.checkpoints.huggingface import modern, sentence_transformers
from convbert.checkpoints.huggingface.tokenizer import read_length
from convbert.checkpoints.model_directory import Conversion, Options
from convbert.common import storage
from convbert.common.errors import InputError
from convbert.common.files import new_folder, read_json
from convbert.finetune.load import load_fine_tuned
from convbert.finetune.results import choose_run
from convbert.model.config import CONFIG_FILE
from convbert.model.heads.embedding import EmbeddingHead
from convbert.pretrain.load import is_fine_tuned


class _Format(NamedTuple):
    read: Callable[[str, Options], Conversion]
    write: Callable[[Conversion, str], list[str]]
    options: tuple[str, ...] = ()  # for some models only


_FORMATS = {
    ("tf1", "convbert"): _Format(tf1.read, tf1.write, ("model_size",)),
    ("tf1", "xlnet"): _Format(xlnet.read_tf1, xlnet.write_tf1),
    ("huggingface", "convbert"): _Format(
        huggingface.read, huggingface.write, ("generator", "task")
    ),
    ("huggingface", "xlnet"): _Format(xlnet.read_huggingface, xlnet.write_huggingface),
    ("huggingface", "modern"): _Format(modern.read, modern.write),
}


def from_elsewhere(source: str, path: str, output: str, options: Options) -> list[str]:
    """Converts a foreign checkpoint to a model directory, atomically; returns notes."""
    with new_folder(output) as folder:
        known = _FORMATS[source, _architecture(source, path)]
        for name in ("generator", "model_size", "task"):
            unread = name not in known.options or (name == "generator" and options.task)
            if getattr(options, name) is not None and unread:
                raise InputError(f"--{name} does not apply to such a model; see --help")
        about: dict[str, Any] = {"source": source, "input": storage.abspath(path)}
        if options.task is not None:
            model, notes = huggingface.read_fine_tuned(path, options)
            model_directory.save_fine_tuned(model, folder, {**about, "notes": notes})
            return notes
        conversion = known.read(path, options)
        if source == "huggingface":
            conversion.trained_length = length = read_length(path, conversion.config)
            if length:
                conversion.hparams = dataclasses.replace(conversion.hparams, max_seq_length=length)
            conversion.notes += sentence_transformers.unread(path)
        about["notes"] = conversion.notes
        about["max_seq_length"] = conversion.trained_length
        model_directory.save(conversion, folder, about)
    return conversion.notes


def to_elsewhere(target: str, path: str, output: str) -> list[str]:
    """Converts a model directory, or the best of a folder of runs; inverse of `from_elsewhere`."""
    if storage.isdir(path) and not storage.exists(os.path.join(path, CONFIG_FILE)):
        path = choose_run(path)["folder"]
    model = load_fine_tuned(path) if target == "huggingface" and is_fine_tuned(path) else None
    with new_folder(output) as folder:
        if model and (notes := huggingface.write_fine_tuned(model, folder)) is not None:
            return notes
        conversion = model_directory.load(path)
        if (known := _FORMATS.get((target, conversion.config.architecture))) is None:
            raise InputError(f"{path}: {target} has no {conversion.config.architecture} encoder")
        notes = known.write(conversion, folder)
        if model and isinstance(model.objective.head, EmbeddingHead):
            return [*notes, *sentence_transformers.write(model, folder)]
    return [*conversion.notes, *notes]


def _architecture(source: str, path: str) -> str:
    """Returns the architecture of foreign files; "convbert" unless they are another's."""
    if source == "tf1":
        return "xlnet" if xlnet.is_tf1(path) else "convbert"
    described = os.path.join(path, CONFIG_FILE)
    model_type = read_json(described).get("model_type") if storage.isfile(described) else None
    return {"xlnet": "xlnet", modern.MODEL_TYPE: "modern"}.get(str(model_type), "convbert")

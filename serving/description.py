"""The description of an exported model: model.json, in a folder or behind a LiteRT model."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from typing import Any

from common import storage
from common.errors import InputError
from common.files import check_regular, parse_json, read_json
from common.settings import typed
from data.vocabulary import MODEL_FILE as SENTENCEPIECE_FILE
from data.vocabulary import SWITCHES_FILE, VOCABULARY_FILE
from model.config import CONFIG_FILE
from serving.records import WORD_FORMATS, WORD_LIST, Inputs, Source
from serving.signatures.signature import Tensor

# Relative to the folder of a SavedModel, in the format's folder for what the graph does not read.
DESCRIPTION = os.path.join("assets.extra", "model.json")
_GRAPH = ("saved_model.pb", os.path.join("variables", "variables.index"))
LITERT_FILE = "model.tflite"
ATTACHED_DESCRIPTION = "model.json"
_ATTACHED = (
    *(ATTACHED_DESCRIPTION, CONFIG_FILE, SWITCHES_FILE, VOCABULARY_FILE, SENTENCEPIECE_FILE),
)
_LARGEST = 2**25  # bytes of an attached file
_BLOCK = 2**20


def litert_file(path: str) -> str | None:
    """The path itself where it is of a LiteRT file, or that of the one in a folder; else None."""
    if path.endswith(".tflite") and not storage.isdir(path):
        return path
    inside = os.path.join(path, LITERT_FILE)
    return inside if storage.exists(inside) else None


def is_exported(path: str) -> bool:
    """Returns True for what export_savedmodel.py wrote."""
    return bool(litert_file(path)) or storage.exists(os.path.join(path, DESCRIPTION))


def read_description(folder: str) -> dict[str, Any]:
    """The description of an exported model, which is the one that it was exported with.

    Args:
        folder: of a SavedModel or of a LiteRT file, or the latter's own path.

    Raises:
        InputError: it is not whole, is not as it was written, or is of another graph.
    """
    if path := litert_file(folder):
        text = attached(path).get(ATTACHED_DESCRIPTION)
        if text is None:
            raise InputError(f"{path}: {ATTACHED_DESCRIPTION} is not behind the model")
        description = parse_json(text.decode("utf-8", "replace"), path)
    else:
        path = os.path.join(folder, DESCRIPTION)
        description = read_json(path)
    digests = description.get("digests") or {}
    name = f"{path}: {ATTACHED_DESCRIPTION}"
    check_belongs(name, _digest(description), digests.get("description"))
    try:
        check_belongs(f"{folder}: the graph", graph_digest(folder), digests["graph"])
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror or error})") from error
    return description


def check_belongs(part: str, received: Any, described: Any) -> None:
    """Raises InputError where a part of an exported model is not the one that it describes."""
    if received != described:
        raise InputError(
            f"{part} should be the one that was exported, {described!s:.80}. Received:"
            f" {received!s:.80}"
        )


def sealed(description: dict[str, Any], graph_digest: str) -> dict[str, Any]:
    """The description with digests of itself and of the graph it belongs to."""
    return {
        **description,
        "digests": {"description": _digest(description), "graph": graph_digest},
    }


def _digest(description: dict[str, Any]) -> str:
    own = {name: value for name, value in description.items() if name != "digests"}
    text = json.dumps(json.loads(json.dumps(own)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def graph_digest(folder: str) -> str:
    """SHA-256 of a LiteRT model without the files behind it, or of a SavedModel.

    The latter's is of its graph and of its variables' index, which has their checksums.
    """
    digest = hashlib.sha256()
    if path := litert_file(folder):
        with storage.open(path, "rb") as stream:
            with zipfile.ZipFile(stream) as archive:
                left = min(item.header_offset for item in archive.infolist())
            stream.seek(0)
            while left and (block := stream.read(min(left, _BLOCK))):
                digest.update(block)
                left -= len(block)
        return digest.hexdigest()
    for name in _GRAPH:
        with storage.open(os.path.join(folder, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


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
            items = [item for item in archive.infolist() if item.filename in _ATTACHED]
            return {i.filename: archive.read(i) for i in items if i.file_size <= _LARGEST}
    except (OSError, zipfile.BadZipFile, RuntimeError, ValueError) as error:
        raise InputError(f"{path}: has no description ({error})") from error


def inputs_of(description: dict[str, Any], signature: str) -> Inputs:
    """Returns the text inputs of a signature; InputError if the model has no such signature."""
    signatures = description["signatures"]
    asked = [name for name, item in signatures.items() if "input_ids" not in item["inputs"]]
    if signature not in asked:
        raise InputError(
            f"--signature should be one of {', '.join(asked)}. Received: {signature!r}"
        )
    inputs = signatures[signature]["inputs"]
    inputs = {name: own["axes"] for name, own in inputs.items() if own["default"] is None}
    lists = [name for name, axes in inputs.items() if len(axes) == 2]
    return Inputs(inputs, description["task"], lists)


def options_of(
    description: dict[str, Any], signature: str, given: dict[str, Any]
) -> dict[str, tuple[Any, str]]:
    """Returns a signature's options, given or default, as {input: (value for all texts, dtype)}."""
    inputs = description["signatures"][signature]["inputs"].items()
    known = {name: Tensor(**own) for name, own in inputs if own["default"] is not None}
    for name, value in given.items():
        if name not in known:
            options = ", ".join(known) or "left out, as there are none"
            raise InputError(
                f"--options: those of {signature} should be {options}. Received: {name!r}"
            )
        annotation = int if known[name].dtype.startswith("int") else float
        given = {**given, name: typed(f"--options: {name}", value, annotation)}
    return {name: (given.get(name, t.default), t.dtype) for name, t in known.items()}


def signature_for(description: dict[str, Any], rows: Source) -> str:
    """The signature that rows are meant for: `words` for lists of words."""
    if WORD_LIST in description["signatures"]:
        if rows.format in WORD_FORMATS:
            return WORD_LIST
        if inputs_of(description, WORD_LIST).are_in(rows.keys()):
            return WORD_LIST
    return "serving_default"

"""The description of an exported model: model.json, in a folder or appended to a LiteRT model."""

from __future__ import annotations

import hashlib
import io
import os
import pathlib
import zipfile
import zlib
from typing import Any

from convbert.common import storage
from convbert.common.errors import InputError, located
from convbert.common.files import LARGEST, check_regular, parse_json, read_json
from convbert.common.settings import parsed, typed
from convbert.data.vocabulary import SWITCHES_FILE, VOCABULARY_FILES
from convbert.model.config import CONFIG_FILE
from convbert.serving.records import WORD_LIST, Inputs, Rows
from convbert.serving.signatures.signature import Tensor

# Relative to a SavedModel's folder, in the format's folder for files that the graph does not read.
DESCRIPTION = os.path.join("assets.extra", "model.json")
LITERT_FILE = "model.tflite"
DIGEST = "sha256"  # of the graph: saved_model.pb, or a LiteRT file without what is attached
ATTACHED_DESCRIPTION = "model.json"
_ATTACHED = (ATTACHED_DESCRIPTION, CONFIG_FILE, SWITCHES_FILE, *VOCABULARY_FILES)
RELEASED = pathlib.Path(__file__).parents[1] / "released"  # see its README.md


def released(path: str) -> str:
    """Returns the file of a model that comes with the project, given its name; else `path`."""
    file = RELEASED / f"{path}.tflite"
    return str(file) if file.is_file() and not storage.exists(path) else path


def litert_file(path: str) -> str | None:
    """Returns the path of a LiteRT file, or of the one in a folder; None for other paths."""
    if path.endswith(".tflite") and not storage.isdir(path):
        return path
    inside = os.path.join(path, LITERT_FILE)
    return inside if storage.exists(inside) else None


def is_exported(path: str) -> bool:
    """Returns True for an output of export_savedmodel.py."""
    return bool(litert_file(path)) or storage.exists(os.path.join(path, DESCRIPTION))


def read_description(folder: str) -> dict[str, Any]:
    """Reads the description in an exported model's folder, or appended to a LiteRT file."""
    path = litert_file(folder)
    if path is None:
        path = os.path.join(folder, DESCRIPTION)
        found = read_json(path)
    else:
        text = attached(path).get(ATTACHED_DESCRIPTION)
        if text is None:
            raise InputError(f"{path}: {ATTACHED_DESCRIPTION} is not appended to the model")
        found = parse_json(text.decode("utf-8", "replace"), path)
    with located(path):
        found.setdefault("task", None)
        _check(found, _FIELDS)
        _check(found["task"] or {"header": True, "columns": {}}, _TASK_FIELDS)
        for signature in found["signatures"].values():
            _check(signature, dict.fromkeys(("inputs", "outputs"), dict[str, dict]))
            for tensor in (*signature["inputs"].values(), *signature["outputs"].values()):
                parsed(Tensor, tensor)
    return found


# What is read of every description.
_FIELDS: dict[str, Any] = {"kind": str, "labels": tuple[str, ...], "task": dict | None}
_FIELDS |= {"signatures": dict[str, dict], DIGEST: str | None}
_TASK_FIELDS = {"header": bool, "columns": dict[str, str | int]}


def _check(found: dict[str, Any], fields: dict[str, Any]) -> None:
    """Raises InputError unless an object has the types of the fields."""
    for name, annotation in fields.items():
        typed(name, found.get(name), annotation)


def attach(model: bytes, folder: str) -> bytes:
    """Appends the files of a folder to a LiteRT model, as a zip archive.

    LiteRT does not read past the model, and `unzip` finds the archive from the end of the file.
    """
    stream = io.BytesIO(model)
    with zipfile.ZipFile(stream, "a") as archive:
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                archive.writestr(zipfile.ZipInfo(name), file.read())
    return stream.getvalue()


def attached(path: str) -> dict[str, bytes]:
    """Returns the files appended to a LiteRT model, by name."""
    check_regular(path)
    try:
        with storage.open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
            items = [item for item in archive.infolist() if item.filename in _ATTACHED]
            if large := [item.filename for item in items if item.file_size > LARGEST]:
                raise ValueError(f"{large[0]} has more than {LARGEST:,} bytes")
            return {item.filename: archive.read(item) for item in items}
    except (OSError, zipfile.BadZipFile, RuntimeError, ValueError, zlib.error) as error:
        raise InputError(f"{path}: has no description ({error})") from error


def litert_graph(path: str) -> bytes:
    """Returns a LiteRT file without what is attached."""
    with storage.open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
        end = min(item.header_offset for item in archive.infolist())
        stream.seek(0)
        return stream.read(end)


def digest(content: bytes) -> str:
    """Returns what a description holds as `DIGEST`."""
    return hashlib.sha256(content).hexdigest()


def check_digest(path: str, content: bytes, description: dict[str, Any]) -> None:
    """Raises InputError if a graph does not have the digest that its description names."""
    if description.get(DIGEST, expected := digest(content)) != expected:
        raise InputError(f"{path}: damaged, as its digest is not that of the description")


def inputs_of(description: dict[str, Any], signature: str) -> Inputs:
    """Returns a signature's text inputs; InputError if the model lacks the signature."""
    signatures = description["signatures"]
    asked = [name for name, item in signatures.items() if "input_ids" not in item["inputs"]]
    if signature not in asked:
        known = " or ".join(asked) or "for texts, but the model has none"
        raise InputError(f"--signature should be {known}. Received: {signature!r}")
    inputs = signatures[signature]["inputs"]
    inputs = {name: own["axes"] for name, own in inputs.items() if own.get("default") is None}
    lists = [name for name, axes in inputs.items() if len(axes) == 2]
    return Inputs(inputs, description["task"], lists)


def options_of(
    description: dict[str, Any], signature: str, given: dict[str, Any]
) -> dict[str, tuple[Any, str]]:
    """Returns given or default options of a signature, {input: (value for all texts, dtype)}."""
    inputs = description["signatures"][signature]["inputs"].items()
    known = {name: Tensor(**own) for name, own in inputs if own.get("default") is not None}
    for name, value in given.items():
        if name not in known:
            options = ", ".join(known) or "left out, as there are none"
            raise InputError(f"--options of {signature} should be {options}. Received: {name!r}")
        dtype = known[name].dtype
        value = typed(f"--options: {name}", value, int if dtype.startswith("int") else float)
        if dtype == "int32" and not -(1 << 31) <= value < 1 << 31:  # TensorFlow would wrap it
            raise InputError(f"--options: {name} should be an int32. Received: {value}")
        given = {**given, name: value}
    return {name: (given.get(name, t.default), t.dtype) for name, t in known.items()}


def signature_for(description: dict[str, Any], rows: Rows) -> str:
    """The signature that rows are meant for: `words` for lists of words."""
    has_list = WORD_LIST in description["signatures"]
    listed = has_list and inputs_of(description, WORD_LIST).are_in(rows.keys())
    return WORD_LIST if listed else "serving_default"

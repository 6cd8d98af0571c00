"""What an exported model says of itself. Needs no TensorFlow."""

from __future__ import annotations

import os
from typing import Any

import storage
from errors import InputError
from files import parse_json, read_json
from serving.litert import DESCRIPTION_FILE, attached, litert_file
from serving.records import WORD_FORMATS, WORD_LIST, Inputs, json_keys
from settings import typed
from signatures.tensors import tensors_of

# Relative to the folder of the SavedModel; see serving/export.py, which imports more than we need.
DESCRIPTION = os.path.join("assets.extra", "model.json")


def read_description(folder: str) -> dict[str, Any]:
    """The description that export_savedmodel.py stored with a model; InputError without.

    `folder` is that of a SavedModel or of a LiteRT file, or the latter's own path.
    """
    if path := litert_file(folder):
        text = attached(path).get(DESCRIPTION_FILE)
        if text is None:
            raise InputError(f"{path}: {DESCRIPTION_FILE} is not among the files behind the model")
        description = parse_json(text.decode("utf-8", "replace"), path)
    else:
        path = os.path.join(folder, DESCRIPTION)
        if not storage.exists(path):
            raise InputError(
                f"{path}: there is no such file, so this is no model of export_savedmodel"
            )
        description = read_json(path)
    missing = {"kind", "labels", "task", "signatures"} - set(description)
    if missing:
        raise InputError(f"{path}: should have the keys {', '.join(sorted(missing))}")
    return description


def inputs_of(description: dict[str, Any], signature: str) -> Inputs:
    """What a signature of a described model takes.

    Raises:
        InputError: there is no such signature, or it takes no text.
    """
    signatures = description["signatures"]
    asked = [name for name, item in signatures.items() if "input_ids" not in item["inputs"]]
    if signature not in asked:
        raise InputError(
            f"--signature should be one of {', '.join(asked)}. Received: {signature!r}"
        )
    inputs = tensors_of(signatures[signature], "inputs")
    inputs = {name: tensor for name, tensor in inputs.items() if tensor.default is None}
    lists = [name for name, tensor in inputs.items() if len(tensor.axes) == 2]
    return Inputs(inputs, description["task"], lists)


def options_of(
    description: dict[str, Any], signature: str, given: dict[str, Any]
) -> dict[str, tuple[Any, str]]:
    """What a signature takes besides texts, as {input: (a value for all texts, its dtype)}.

    Raises:
        InputError: there is no such input, or the value is no number of its type.
    """
    inputs = tensors_of(description["signatures"][signature], "inputs")
    known = {name: tensor for name, tensor in inputs.items() if tensor.default is not None}
    for name, value in given.items():
        if name not in known:
            options = ", ".join(known) or "left out, as there are none"
            raise InputError(
                f"--options: those of {signature} should be {options}. Received: {name!r}"
            )
        annotation = int if known[name].dtype.startswith("int") else float
        given = {**given, name: typed(f"--options: {name}", value, annotation)}
    return {name: (given.get(name, t.default), t.dtype) for name, t in known.items()}


def signature_for(description: dict[str, Any], line: bytes, file_format: str | None = None) -> str:
    """The signature that rows like this line are meant for: `words` for lists of words."""
    if WORD_LIST in description["signatures"]:
        if file_format in WORD_FORMATS:
            return WORD_LIST
        keys = json_keys(line)
        if inputs_of(description, WORD_LIST).columns(keys)[WORD_LIST] in keys:
            return WORD_LIST
    return "serving_default"

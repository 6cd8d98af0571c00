"""What an exported model says of itself. Needs no TensorFlow."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import storage
from errors import InputError
from files import parse_json, read_json
from serving.litert import DESCRIPTION_FILE, attached, litert_file
from serving.records import WORD_FORMATS, WORD_LIST, Inputs, Source
from settings import typed
from signatures.tensors import tensors_of

# Relative to the folder of a SavedModel, in the format's folder for what the graph does not read.
DESCRIPTION = os.path.join("assets.extra", "model.json")


def read_description(folder: str) -> dict[str, Any]:
    """The description that export_savedmodel.py stored with a model.

    Args:
        folder: of a SavedModel or of a LiteRT file, or the latter's own path.
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
    digest = (description.get("digests") or {}).get("description")
    if digest != _digest(description):
        raise InputError(
            f"{path}: {os.path.basename(DESCRIPTION)} should be as export_savedmodel.py wrote it."
            f" Received: another text than that of its digest, {digest}"
        )
    return description


def sealed(description: dict[str, Any], graph_digest: str) -> dict[str, Any]:
    """The description with digests of itself and of the graph it belongs to."""
    return {
        **description,
        "digests": {"description": _digest(description), "graph": graph_digest},
    }


def check_belongs(path: str, part: str, received: Any, described: Any) -> None:
    """Raises InputError where a part of an exported model is not the one that it describes."""
    if received != described:
        raise InputError(
            f"{path}: {part} should be the one that was exported, {described!s:.80}. Received:"
            f" {received!s:.80}"
        )


def _digest(description: dict[str, Any]) -> str:
    own = {name: value for name, value in description.items() if name != "digests"}
    text = json.dumps(json.loads(json.dumps(own)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def inputs_of(description: dict[str, Any], signature: str) -> Inputs:
    """What a signature of a described model takes."""
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


def mask_of(description: dict[str, Any]) -> str:
    """Returns the token that stands for a masked word in texts."""
    return "<mask>" if description["vocabulary"]["tokenizer"] == "sentencepiece" else "[MASK]"


def options_of(
    description: dict[str, Any], signature: str, given: dict[str, Any]
) -> dict[str, tuple[Any, str]]:
    """What a signature takes besides texts, as {input: (a value for all texts, its dtype)}."""
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


def signature_for(description: dict[str, Any], rows: Source) -> str:
    """The signature that rows are meant for: `words` for lists of words."""
    if WORD_LIST in description["signatures"]:
        if rows.format in WORD_FORMATS:
            return WORD_LIST
        if inputs_of(description, WORD_LIST).are_in(rows.keys()):
            return WORD_LIST
    return "serving_default"

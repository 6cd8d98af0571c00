"""Writes what the networks of a model compute as one LiteRT file, which describes itself."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import tempfile
from typing import Any

import tensorflow as tf

from backend import for_accelerator
from errors import InputError, reason, warn
from files import new_folder, write_bytes, write_json
from serving.check import Check
from serving.description import sealed
from serving.export import describe
from serving.litert import DESCRIPTION_FILE, MODEL_FILE, attach
from serving.load import ServedModel, signatures
from signatures.functions import ENCODE, PREDICT, SCORE, Function, functions_of
from signatures.pretraining import IN_LITERT
from training.tracing import plain_function


def export(
    model: ServedModel,
    output_dir: str,
    source: str,
    weights: str = "float32",
    check_file: str | None = None,
    max_difference: float = 0.5,
) -> dict[str, Any]:
    """Writes `model.tflite`; returns the description, which is attached to it.

    Args:
        weights: see `convert`.
        check_file: rows about which both models are asked first; see `serving.check`.
        max_difference: of their answers, in points of percent.
    """
    functions = [offer.function for offer in IN_LITERT]
    for offer in model.offers:
        if offer.function not in functions:
            warn(f"{offer.name} is left out, which LiteRT cannot compute")
    kept = {o: networks for o, networks in model.offers.items() if o.function in functions}
    model = dataclasses.replace(model, offers=kept)
    asked, expected = signatures(model), None  # in the forms of this machine, not of LiteRT
    if check_file is not None:  # what is wrong with it is said before the conversion
        expected = Check(check_file, describe(model, asked, source), asked, max_difference)
    functions = functions_of(model)
    traced = {name: _traced(function) for name, function in functions.items()}
    with new_folder(output_dir, MODEL_FILE) as folder:
        content, missing = _convert_what_can_be(traced, model.variables, weights, folder)
        for name, error in missing.items():
            if name in (ENCODE, PREDICT):
                raise error
            warn(f"the function {name} is left out: {error}")
        if missing:
            functions = {name: functions[name] for name in functions if name not in missing}
            asked = signatures(model, functions)
        described = describe(model, asked, source)
        _add_what_functions_need(described, model, functions, traced, weights)
        described = sealed(described, hashlib.sha256(content).hexdigest())
        with tempfile.TemporaryDirectory(dir=folder) as attached:
            model.vocabulary.save(attached)
            model.config.save(attached)
            write_json(os.path.join(attached, DESCRIPTION_FILE), described)
            content = attach(content, attached)
        write_bytes(os.path.join(folder, MODEL_FILE), content)
        if expected is not None:
            for name, found in expected.agreement(folder).items():
                print(
                    f"{check_file}: the answers of {name} agree with the model's by {found:.2f} %"
                )
    return described


def _add_what_functions_need(
    description: dict[str, Any],
    model: ServedModel,
    functions: dict[str, Function],
    traced: dict[str, tf.types.experimental.ConcreteFunction],
    weights: str,
) -> None:
    """Adds `litert` to the description of a SavedModel: how functions become signatures again."""
    description["vocabulary"]["file"] = model.vocabulary.file
    transitions, scoring = model.transitions, None
    if SCORE in functions:
        scoring = model.scoring_method._asdict()
        del scoring["networks"], scoring["log_scores"]
    else:
        description["scoring_method"] = None
    description["litert"] = {
        "weights": weights,
        "visible_padding": model.visible_padding,
        "functions": {name: _about(functions[name], traced[name]) for name in functions},
        "transitions": [value.numpy().tolist() for value in transitions] if transitions else None,
        "scoring": scoring,
    }


def _traced(function: Function) -> tf.types.experimental.ConcreteFunction:
    with for_accelerator("litert"):
        return plain_function(
            function.compute, input_signature=[function.specs()]
        ).get_concrete_function()


def _about(function: Function, traced: tf.types.experimental.ConcreteFunction) -> dict[str, Any]:
    outputs = {
        name: {"dtype": value.dtype.name, "shape": value.shape.as_list()}
        for name, value in traced.structured_outputs.items()
    }
    return {"inputs": list(function.inputs), "outputs": outputs}


def _convert_what_can_be(
    traced: dict[str, tf.types.experimental.ConcreteFunction],
    variables: list[tf.Variable],
    weights: str,
    folder: str,
) -> tuple[bytes, dict[str, InputError]]:
    """The content of a LiteRT file, and why functions are not in it."""
    try:
        return convert(traced, variables, weights, folder), {}
    except InputError as error:
        together, missing = error, {}
    for name, function in traced.items():
        try:
            convert({name: function}, variables, weights, folder)
        except InputError as error:
            missing[name] = error
    left = {name: function for name, function in traced.items() if name not in missing}
    if not left or not missing:
        raise together
    return convert(left, variables, weights, folder), missing


def convert(
    traced: dict[str, tf.types.experimental.ConcreteFunction],
    variables: list[tf.Variable],
    weights: str,
    folder: str,
) -> bytes:
    """The content of a LiteRT file with a signature for each function.

    Args:
        traced: by name.
        variables: that they read; the file has each of them once.
        weights: "float32"; "float16", in which weights are stored, while all is computed in
            float32; or "int8", in which matrices are stored and products computed, with a scale
            for each row of the matrix and one for the inputs of a product, found at run time.
        folder: for files in between, which are gone afterwards.
    """
    root = tf.Module()
    root.model_variables = variables
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        try:
            tf.saved_model.save(root, saved, signatures=traced)
        except tf.errors.OpError as error:
            raise InputError(f"{folder}: cannot be written: {reason(error)}") from error
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=list(traced))
        if weights != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if weights == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except Exception as error:  # of a class that TensorFlow does not name
            lacking = sorted(set(re.findall(r"'(tf\.\w+)' op", str(error))))
            said = f"lacks {', '.join(lacking)}" if lacking else "cannot convert it"
            raise InputError(f"LiteRT {said}") from error

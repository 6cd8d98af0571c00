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
from serving.description import ATTACHED_DESCRIPTION, LITERT_FILE, attach, sealed
from serving.export import describe
from serving.load import ServedModel, signatures
from signatures.network import ENCODE, PREDICT, SCORE, Function
from signatures.pretraining import IN_LITERT
from training.tracing import plain_function


def export(
    model: ServedModel, output_dir: str, source: str, weights: str = "float32"
) -> dict[str, Any]:
    """Writes `model.tflite`; returns the description, which is attached to it. See `convert`."""
    known = (ENCODE, PREDICT, SCORE, *(offer.function for offer in IN_LITERT))
    for offer in model.offers:
        if offer.function not in known:
            warn(f"{offer.name} is left out, which LiteRT cannot compute")
    functions = {name: own for name, own in model.functions.items() if name in known}
    offers = {own: networks for own, networks in model.offers.items() if own.function in known}
    model = dataclasses.replace(model, offers=offers, functions=functions)
    traced = {name: _traced(function) for name, function in functions.items()}
    with new_folder(output_dir, LITERT_FILE) as folder:
        try:
            content = convert(traced, model.variables, weights, folder)
        except InputError as error:
            if SCORE not in traced:
                raise
            warn(f"the function {SCORE} is left out: {error}")
            del functions[SCORE], traced[SCORE]
            content = convert(traced, model.variables, weights, folder)
        described = describe(model, signatures(model), source)
        _add_what_functions_need(described, model, traced, weights)
        described = sealed(described, hashlib.sha256(content).hexdigest())
        with tempfile.TemporaryDirectory(dir=folder) as attached:
            model.vocabulary.save(attached)
            model.config.save(attached)
            write_json(os.path.join(attached, ATTACHED_DESCRIPTION), described)
            content = attach(content, attached)
        write_bytes(os.path.join(folder, LITERT_FILE), content)
    return described


def _add_what_functions_need(
    description: dict[str, Any],
    model: ServedModel,
    traced: dict[str, tf.types.experimental.ConcreteFunction],
    weights: str,
) -> None:
    """Adds `litert` to the description of a SavedModel: how functions become signatures again."""
    description["vocabulary"]["file"] = model.vocabulary.file
    scoring = None
    if SCORE in model.functions:
        scoring = model.scoring_method._asdict()
        del scoring["networks"], scoring["log_scores"]
    else:
        description["scoring_method"] = None
    description["litert"] = {
        "weights": weights,
        "visible_padding": model.visible_padding,
        "functions": {name: _about(own, traced[name]) for name, own in model.functions.items()},
        "constants": {name: value.tolist() for name, value in model.constants.items()},
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

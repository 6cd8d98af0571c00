"""Writes what the networks of a model compute as one LiteRT file, which describes itself."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from backend import for_accelerator
from errors import InputError, reason, warn
from files import new_folder, read_bytes, write_bytes, write_json
from serving.description import (
    ATTACHED_DESCRIPTION,
    LITERT_FILE,
    attach,
    inputs_of,
    mask_of,
    sealed,
    signature_for,
)
from serving.export import describe
from serving.load import ServedModel, signatures
from serving.model import Model, load, of_directory
from serving.records import Record, read_records, source
from signatures.network import ENCODE, PREDICT, SCORE, Function
from signatures.pretraining import IN_LITERT
from training.tracing import plain_function

_MASKED = "masked_tokens"


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
        check_file: rows about which both models are asked first; see `check`.
        max_difference: of their answers, in points of percent.
    """
    for offer in model.offers:
        if offer not in IN_LITERT:
            warn(f"{offer.name} is left out, which LiteRT cannot compute")
    kept = [offer for offer in model.offers if offer in IN_LITERT]
    names = (ENCODE, PREDICT, *(offer.function for offer in kept), SCORE)
    functions = {name: model.functions[name] for name in names if name in model.functions}
    offers = {offer: model.offers[offer] for offer in kept}
    model = dataclasses.replace(model, offers=offers, functions=functions)
    # In the forms of this machine, not of LiteRT; a file that is wrong is so before the conversion.
    original = of_directory(model, source)
    rows = {} if check_file is None else rows_to_ask(check_file, original)
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
        if rows:
            check(rows, original, load(folder), max_difference)
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


def rows_to_ask(path: str, model: Model) -> dict[str, list[Record]]:
    """Signature -> rows of a file, as serving.predict reads them; labels are not read.

    Masked tokens are asked about with a mask in place of a text's middle word, if it has none.
    """
    rows = source(path, io.BytesIO(read_bytes(path)))
    signature = signature_for(model.description, rows)
    records = list(read_records(rows, inputs_of(model.description, signature)))
    if not records:
        raise InputError(f"{path}: has no rows to check by")
    found = {signature: records}
    if _MASKED in model.signatures:
        mask = mask_of(model.description)
        found[_MASKED] = [_masked(record, mask) for record in records]
    return found


def _masked(record: Record, mask: str) -> Record:
    text = record.values["text"]
    words = text.split()
    if words and mask not in text:
        words[len(words) // 2] = mask
        text = " ".join(words)
    return record._replace(values={"text": text})


def check(
    rows: dict[str, list[Record]], original: Model, exported: Model, max_difference: float
) -> None:
    """Prints the agreement of two models' answers; InputError where it is not 100 % by more."""
    for name, records in rows.items():
        found = agreement(*(model.client(name).rows(records) for model in (original, exported)))
        if not found >= 100.0 - max_difference:  # nor where it is no number
            raise InputError(
                f"--check: the answers of {name} should agree with the model's by"
                f" {100.0 - max_difference:g} %. They agree by {found:.2f} %"
            )
        print(f"--check: the answers of {name} agree with the model's by {found:.2f} %")


def agreement(expected: Sequence[dict[str, Any]], received: Sequence[dict[str, Any]]) -> float:
    """Percent: 100 where the answers are the same.

    Of labels, tags and texts it is the share that is equal; of numbers, 100 less the squared error
    as a share of their variance; of vectors, which a pre-trained model answers with, the mean
    cosine; of lists of candidates for masked tokens the mean share that is in both lists; of what
    other kinds answer with, the share of equal rows.
    """
    if "candidates" in expected[0]:
        both = zip(expected, received)
        pairs = [pair for a, b in both for pair in zip(a["candidates"], b["candidates"])]
        shares = [len({*a} & {*b}) / len(a) for a, b in pairs]
        return float(100.0 * np.mean(shares or [1.0]))
    if "pooled" in expected[0]:
        cosines = [_cosine(a["pooled"], b["pooled"]) for a, b in zip(expected, received)]
        return float(100.0 * np.mean(cosines))
    first, second = ([row.get("prediction", row) for row in rows] for rows in (expected, received))
    if isinstance(first[0], float):
        error, variance = np.mean(np.subtract(first, second) ** 2), np.var(first)
        if not variance:  # one row, or one answer to all
            return 100.0 if not error else 0.0
        return float(100.0 * (1.0 - error / variance))
    if isinstance(first[0], list):
        pairs = [pair for rows in zip(first, second) for pair in itertools.zip_longest(*rows)]
    else:
        pairs = list(zip(first, second))
    return float(100.0 * np.mean([a == b for a, b in pairs])) if pairs else 100.0


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))

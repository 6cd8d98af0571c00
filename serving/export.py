"""Writes a model as a SavedModel or a LiteRT file, atomically."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import re
import tempfile
from typing import Any

import tensorflow as tf

from convbert.common import plugins, storage
from convbert.common.backend import for_accelerator
from convbert.common.errors import InputError, reason, warn
from convbert.common.files import new_folder, read_bytes, write_bytes, write_json
from convbert.data.tokenizers import create_tokenizer
from convbert.model.kernels import without_gradients
from convbert.serving.description import (
    ATTACHED_DESCRIPTION,
    DESCRIPTION,
    DIGEST,
    LITERT_FILE,
    attach,
    digest,
)
from convbert.serving.load import ServedModel, signatures
from convbert.serving.signatures.network import ENCODE, PREDICT, SCORE, Function
from convbert.serving.signatures.pretraining import IN_LITERT
from convbert.serving.signatures.signature import Signature
from convbert.serving.trusted import GRAPH_FILE, LARGEST_GRAPH, without_files
from convbert.training.run_record import git_commit
from convbert.training.tracing import plain_function

_PACKAGES = ("tensorflow", "tensorflow-text", "tf_keras")
Traced = dict[str, tf.types.experimental.ConcreteFunction]  # by name of the signature or function


def export(model: ServedModel, output_dir: str, source: str) -> dict[str, Any]:
    """Writes the SavedModel; returns its description, which is `assets.extra/model.json`.

    Where TensorFlow cannot tokenize, it has the signatures of token ids alone.
    """
    asked = signatures(model)
    if not create_tokenizer(model.vocabulary).in_graph:
        dtypes = {n: {i.dtype for i in own.inputs.values()} for n, own in asked.items()}
        of_text = [name for name, own in dtypes.items() if "string" in own]
        lacking = "as TensorFlow has no byte-level BPE; LiteRT files have them"
        warn(f"{', '.join(of_text)} are left out, {lacking}")
        asked = {name: own for name, own in asked.items() if name not in of_text}
        if not asked:
            raise InputError(
                "a SavedModel of this task needs text, which TensorFlow cannot tokenize by"
                " byte-level BPE; use --format litert"
            )
    traced = {name: signature.trace() for name, signature in asked.items()}
    with new_folder(output_dir, GRAPH_FILE) as folder:
        root = tf.Module()
        root.model_variables = model.variables
        with tempfile.TemporaryDirectory(dir=folder) as assets:  # removed with the folder
            model.vocabulary.save(assets)
            root.vocabulary = tf.saved_model.Asset(os.path.join(assets, model.vocabulary.file))
            _save(root, folder, traced)
        description = describe(model, asked, source)
        content = read_bytes(os.path.join(folder, GRAPH_FILE), LARGEST_GRAPH)
        description[DIGEST] = digest(content)
        try:
            without_files(output_dir, content)
        except InputError as error:  # operations of a plug-in
            warn(str(error))
        os.makedirs(os.path.dirname(os.path.join(folder, DESCRIPTION)))
        write_json(os.path.join(folder, DESCRIPTION), description)
    return description


def describe(model: ServedModel, asked: dict[str, Signature], source: str) -> dict[str, Any]:
    """Returns an exported model's `model.json`: everything needed to use it, and its origin."""
    task = model.task.to_json() if model.task else None
    if task:
        del task["folders"]  # the data's location
    return {
        "kind": model.kind,
        "labels": list(model.task.labels) if model.task else [],
        "max_seq_length": model.max_seq_length,
        "vocabulary": {
            "file": f"assets/{model.vocabulary.file}",
            "do_lower_case": model.vocabulary.do_lower_case,
            "strip_accents": model.vocabulary.strip_accents,
            "tokenizer": model.vocabulary.tokenizer,
            "sha256": model.vocabulary.digest,
        },
        "scoring_method": model.scoring_method.name if model.scoring_method else None,
        "signatures": {name: item.to_json() for name, item in asked.items()},
        "task": task,
        "encoder": model.config.to_json(),
        "source": storage.abspath(source),
        "run": model.run,
        "training": model.record,
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "git_commit": git_commit(),
        **plugins.recorded(),
    }


def _save(root: tf.Module, folder: str, traced: Traced) -> None:
    try:
        tf.saved_model.save(root, folder, signatures=traced)
    except tf.errors.OpError as error:
        raise InputError(f"{folder}: cannot be written: {reason(error)}") from error


def export_litert(
    model: ServedModel, output_dir: str, source: str, weights: str = "float32"
) -> dict[str, Any]:
    """Writes `model.tflite`; returns the attached description. See `convert`."""
    known = (ENCODE, PREDICT, SCORE, *(offer.function for offer in IN_LITERT))
    for offer in model.offers:
        if offer.function not in known:
            warn(f"{offer.name} is left out, as LiteRT cannot compute it")
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
            model = dataclasses.replace(model, scoring_method=None)
            content = convert(traced, model.variables, weights, folder)
        described = describe(model, signatures(model), source)
        described["vocabulary"]["file"] = model.vocabulary.file
        described |= {DIGEST: digest(content), "litert": _litert(model, traced, weights)}
        with tempfile.TemporaryDirectory(dir=folder) as attached:
            model.vocabulary.save(attached)
            model.config.save(attached)
            write_json(os.path.join(attached, ATTACHED_DESCRIPTION), described)
            content = attach(content, attached)
        write_bytes(os.path.join(folder, LITERT_FILE), content)
    return described


def _litert(model: ServedModel, traced: Traced, weights: str) -> dict[str, Any]:
    """Returns `litert` of a description: the data for rebuilding signatures from functions."""
    functions, method = {}, model.scoring_method
    for name, function in model.functions.items():
        own = traced[name].structured_outputs.items()
        outputs = {n: {"dtype": x.dtype.name, "shape": x.shape.as_list()} for n, x in own}
        functions[name] = {"inputs": list(function.inputs), "outputs": outputs}
    return {
        "weights": weights,
        "visible_padding": model.visible_padding,
        "functions": functions,
        "constants": {name: value.tolist() for name, value in model.constants.items()},
        "scoring": method and {n: getattr(method, n) for n in ("name", "masks_each", "causal")},
    }


def _traced(function: Function) -> tf.types.experimental.ConcreteFunction:
    with for_accelerator("litert"), without_gradients():
        traced = plain_function(function.compute, input_signature=[function.specs()])
        return traced.get_concrete_function()


def convert(traced: Traced, variables: list[tf.Variable], weights: str, folder: str) -> bytes:
    """Returns the content of a LiteRT file with a signature for each function.

    Args:
        variables: variables that the functions read; the file has each of them once.
        weights: "float32"; "float16" for storage, with float32 computation; or "int8" for storage
            of matrices and computation of products, with a scale per row of the matrix and one for
            a product's inputs, found at run time.
        folder: folder for temporary files.
    """
    root = tf.Module()
    root.model_variables = variables
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        _save(root, saved, traced)
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=list(traced))
        if weights != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if weights == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except Exception as error:  # TensorFlow does not document its class
            lacking = sorted(set(re.findall(r"'(tf\.\w+)' op", str(error))))
            said = f"lacks {', '.join(lacking)}" if lacking else "cannot convert it"
            raise InputError(f"LiteRT {said}") from error

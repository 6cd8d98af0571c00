"""Writes a model as a SavedModel, atomically."""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import plugins
import storage
from errors import InputError, reason
from files import new_folder, write_json
from serving.description import DESCRIPTION, graph_digest, sealed
from serving.load import ServedModel, signatures
from signatures.signature import Signature, Tensors
from training.model_directory import git_commit

_PACKAGES = ("tensorflow", "tensorflow-text", "tf_keras")


def export(model: ServedModel, output_dir: str, source: str) -> dict[str, Any]:
    """Writes the SavedModel and asks it a question before it gets its name.

    Returns:
        The description, which is stored in `assets.extra/model.json` and names the `source`.
    """
    asked = signatures(model)
    sample = _sample(asked["serving_default"])
    with new_folder(output_dir, "saved_model.pb") as folder:
        expected = _save(model, asked, folder)["serving_default"](**sample)
        description = sealed(describe(model, asked, source), graph_digest(folder))
        os.makedirs(os.path.dirname(os.path.join(folder, DESCRIPTION)))
        write_json(os.path.join(folder, DESCRIPTION), description)
        _check(folder, sample, expected)
    return description


def describe(model: ServedModel, asked: dict[str, Signature], source: str) -> dict[str, Any]:
    """What travels with the SavedModel: everything that one would have to know to use it."""
    task = model.task.to_json() if model.task else None
    if task:
        del task["folders"]  # where the data was
    return {
        "kind": model.kind,
        "labels": list(model.task.labels) if model.task else [],
        "max_seq_length": model.max_seq_length,
        "precision": model.precision,
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


def _save(model: ServedModel, asked: dict[str, Signature], folder: str) -> dict[str, Callable]:
    """Writes the SavedModel; returns the graphs of its signatures."""
    root = tf.Module()
    root.model_variables = model.variables
    traced = {name: signature.trace() for name, signature in asked.items()}
    with tempfile.TemporaryDirectory(dir=folder) as assets:  # which goes when the folder does
        model.vocabulary.save(assets)
        root.vocabulary = tf.saved_model.Asset(os.path.join(assets, model.vocabulary.file))
        try:
            tf.saved_model.save(root, folder, signatures=traced)
        except tf.errors.OpError as error:
            raise InputError(f"{folder}: cannot be written: {reason(error)}") from error
    return traced


def _sample(signature: Signature) -> Tensors:
    """A batch of one for a signature that takes text."""
    found = {}
    for name, item in signature.inputs.items():
        text = ["the city"] if len(item.axes) == 1 else [["the", "city"]]
        found[name] = tf.constant(text if item.default is None else [item.default], item.dtype)
    return found


def _check(folder: str, sample: Tensors, expected: Tensors) -> None:
    """Loads the SavedModel and asks `serving_default` what its graph was asked before."""
    answers = tf.saved_model.load(folder).signatures["serving_default"](**sample)
    for name, value in expected.items():
        received = answers[name].numpy()
        if value.dtype.is_floating:
            same = np.allclose(received, value, rtol=1e-5, atol=1e-5)
        else:
            same = np.array_equal(received, value)
        if not same:
            raise RuntimeError(f"the saved model's `{name}` is {received}, not {value.numpy()}")

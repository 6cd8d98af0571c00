"""Signatures of a LiteRT file, based on its functions of token ids.

The same graphs as in a SavedModel convert texts to token ids and outputs to answers; they are built
from the file's description, and call LiteRT.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from convbert.common import storage
from convbert.common.errors import InputError
from convbert.common.machine import num_cores
from convbert.common.settings import field_names, present
from convbert.data.vocabulary import Vocabulary
from convbert.finetune import declaration
from convbert.finetune.hparams import resolve_hparams
from convbert.model import load_config
from convbert.pretrain.objectives import ScoringMethod
from convbert.serving.description import attached, check_digest, litert_graph, read_description
from convbert.serving.load import signatures
from convbert.serving.signatures.network import Function, Served
from convbert.serving.signatures.pretraining import IN_LITERT
from convbert.serving.signatures.signature import Signature, Tensors


def load_signatures(path: str) -> dict[str, Signature]:
    """Returns the signatures of a LiteRT file, `serving_default` first; they keep it open."""
    said = read_description(path)
    check_digest(path, litert_graph(path), said)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in attached(path).items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        try:
            return signatures(_described(folder, path, said))
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", f"{path}: ")) from error
        except (KeyError, TypeError) as error:  # from another version
            raise InputError(f"{path}: the description is incomplete ({error!r})") from error


def _described(folder: str, path: str, said: dict[str, Any]) -> Served:
    """Makes a model from a description and a folder of the attached files."""
    config, vocabulary = load_config(folder), Vocabulary.load(folder)
    task = hparams = None
    if said["task"] is not None:
        task = declaration.parse(said["task"], path)
        saved = said["training"]["hparams"]
        values = {name: saved[name] for name in field_names(task.plugin.hparams) if name in saved}
        values["max_seq_length"] = said["max_seq_length"]
        hparams = resolve_hparams(values, task, config)
    about, runtime = said["litert"], _Runtime(path)
    scoring = about["scoring"]
    if scoring:
        kinds = scoring["masks_each"], scoring["causal"]
        scoring = ScoringMethod(scoring["name"], (), None, *kinds)
    return Served(
        kind=said["kind"],
        config=config,
        vocabulary=vocabulary,
        max_seq_length=said["max_seq_length"],
        visible_padding=about["visible_padding"],
        functions={n: runtime.function(n, item) for n, item in about["functions"].items()},
        hparams=hparams,
        task=task,
        constants={n: np.asarray(value, np.float32) for n, value in about["constants"].items()},
        scoring_method=scoring,
        offers=dict.fromkeys(IN_LITERT, ()),
    )


class _Runtime:
    """An interpreter of a LiteRT file, for one caller at a time."""

    def __init__(self, path: str):
        from ai_edge_litert.interpreter import Interpreter  # only LiteRT needs it

        self._lock = threading.Lock()
        with tempfile.TemporaryDirectory() as folder:
            try:
                local = storage.download(path, folder)
                self._interpreter = Interpreter(local, num_threads=num_cores())
            except (ValueError, RuntimeError) as error:
                raise InputError(f"{path}: LiteRT cannot read it ({error})") from error

    def function(self, name: str, about: dict[str, Any]) -> Function:
        """Wraps a signature of the file for use in graphs."""
        runner = self._interpreter.get_signature_runner(name)
        outputs = about["outputs"].items()
        specs = {key: tf.TensorSpec(item["shape"], item["dtype"]) for key, item in outputs}

        def run(*values: np.ndarray) -> list[np.ndarray]:
            if not all(value.size for value in values):  # LiteRT rejects empty inputs
                return [_nothing(spec, values) for spec in specs.values()]
            with self._lock:
                found = runner(**dict(zip(about["inputs"], values)))
            return [found[key] for key in specs]

        # TensorFlow keeps functions called by graphs forever, so the graph does not hold the model.
        reference = weakref.ref(run)

        def compute(features: Tensors, _kept=run) -> Tensors:
            values = [features[key] for key in about["inputs"]]
            types = [spec.dtype for spec in specs.values()]
            found = tf.numpy_function(lambda *given: present(reference())(*given), values, types)
            for value, spec in zip(found, specs.values()):
                value.set_shape(spec.shape)
            return dict(zip(specs, found))

        return Function(compute, tuple(about["inputs"]))


def _nothing(spec: tf.TensorSpec, values: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the output for empty inputs."""
    width = min(value.shape[1] for value in values if value.ndim > 1)
    sizes = [width if size is None else size for size in spec.shape[1:]]
    return np.zeros([len(values[0]), *sizes], spec.dtype.as_numpy_dtype)

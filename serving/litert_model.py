"""What a LiteRT file computes, as the functions that signatures are made of.

Texts become token ids, and outputs answers, in the same graphs that a SavedModel has; these are
built from the file's description, and call LiteRT.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import threading
import weakref
from typing import Any

import numpy as np
import tensorflow as tf

import storage
from data.vocabulary import Vocabulary
from errors import InputError
from finetune import declaration
from finetune.hparams import FinetuningHParams, resolve_hparams
from finetune.task import Task
from machine import num_cores
from model import BackboneConfig, load_config
from model.config import CONFIG_FILE
from model.heads.linear_chain import ChainScores
from pretrain.objectives import ScoringMethod
from serving.description import check_belongs, read_description
from serving.litert import attached, graph_digest
from serving.load import signatures
from settings import field_names
from signatures.functions import Function, Offer
from signatures.pretraining import IN_LITERT
from signatures.signature import Signature, Tensors


@dataclasses.dataclass(frozen=True)
class LiteRTModel:
    """What signatures read of a `ServedModel`, from the description of a LiteRT file."""

    kind: str
    config: BackboneConfig
    vocabulary: Vocabulary
    max_seq_length: int
    visible_padding: int
    hparams: FinetuningHParams | None
    task: Task | None
    scoring_method: ScoringMethod | None
    transitions: ChainScores | None
    offers: dict[Offer, tuple[()]]  # of pre-training, with which functions become signatures


def load_signatures(path: str, num_threads: int | None = None) -> dict[str, Signature]:
    """The signatures of a LiteRT file, `serving_default` first; they keep it open.

    Args:
        path: of the file.
        num_threads: of LiteRT; by default one for each core that this process may use.
    """
    model, about = _read(path)
    return signatures(model, _functions(path, about, num_threads))


def load_functions(path: str, num_threads: int | None = None) -> dict[str, Function]:
    """The file's own signatures, for graphs; arguments and errors are `load_signatures`'."""
    return _functions(path, _read(path)[1], num_threads)


def _functions(path: str, about: dict[str, Any], num_threads: int | None) -> dict[str, Function]:
    runtime = _Runtime(path, num_threads or num_cores())
    return {name: runtime.function(name, item) for name, item in about.items()}


def _read(path: str) -> tuple[LiteRTModel, dict[str, Any]]:
    """The model and what its description says of its functions."""
    said = read_description(path)
    check_belongs(path, "the model", graph_digest(path), said["digests"]["graph"])
    with tempfile.TemporaryDirectory() as folder:
        for name, content in attached(path).items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        try:
            return _described(folder, path, said)
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", f"{path}: ")) from error
        except (KeyError, TypeError, OSError) as error:
            raise InputError(f"{path}: the description is not whole ({error!r})") from error


def _described(folder: str, path: str, said: dict[str, Any]) -> tuple[LiteRTModel, dict[str, Any]]:
    """`_read`, of the files in a folder."""
    config, vocabulary = load_config(folder), Vocabulary.load(folder)
    check_belongs(path, vocabulary.file, vocabulary.digest, said["vocabulary"]["sha256"])
    check_belongs(path, CONFIG_FILE, config.to_json(), said["encoder"])
    task = hparams = None
    if said["task"] is not None:
        task = declaration.parse(said["task"], path)
        saved = said["training"]["hparams"]
        values = {name: saved[name] for name in field_names(task.plugin.hparams) if name in saved}
        values["max_seq_length"] = said["max_seq_length"]
        hparams = resolve_hparams(values, task, config)
    about = said["litert"]
    scoring, chain = about["scoring"], about["transitions"]
    model = LiteRTModel(
        kind=said["kind"],
        config=config,
        vocabulary=vocabulary,
        max_seq_length=said["max_seq_length"],
        visible_padding=about["visible_padding"],
        hparams=hparams,
        task=task,
        scoring_method=scoring and ScoringMethod(**scoring, networks=(), log_scores=None),
        transitions=chain and ChainScores(*map(tf.constant, chain)),
        offers=dict.fromkeys(IN_LITERT, ()),
    )
    return model, about["functions"]


class _Runtime:
    """An interpreter of a LiteRT file; one caller at a time."""

    def __init__(self, path: str, num_threads: int):
        from ai_edge_litert.interpreter import Interpreter  # which serving otherwise does without

        self._lock = threading.Lock()
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._interpreter = Interpreter(
                    storage.download(path, folder), num_threads=num_threads
                )
            except (ValueError, RuntimeError) as error:
                raise InputError(f"{path}: LiteRT cannot read it ({error})") from error

    def function(self, name: str, about: dict[str, Any]) -> Function:
        """A signature of the file, in a graph."""
        runner = self._interpreter.get_signature_runner(name)
        specs = {
            key: tf.TensorSpec(item["shape"], item["dtype"])
            for key, item in about["outputs"].items()
        }

        def run(*values: np.ndarray) -> list[np.ndarray]:
            if not all(value.size for value in values):  # of which LiteRT makes an error
                return [_nothing(spec, values) for spec in specs.values()]
            with self._lock:
                found = runner(**dict(zip(about["inputs"], values)))
            return [found[key] for key in specs]

        # TensorFlow keeps what a graph calls for good, so the graph does not keep the model.
        reference = weakref.ref(run)

        def compute(features: Tensors, _kept=run) -> Tensors:
            values = [features[key] for key in about["inputs"]]
            types = [spec.dtype for spec in specs.values()]
            found = tf.numpy_function(lambda *given: reference()(*given), values, types)
            for value, spec in zip(found, specs.values()):
                value.set_shape(spec.shape)
            return dict(zip(specs, found))

        return Function(compute, tuple(about["inputs"]))


def _nothing(spec: tf.TensorSpec, values: list[np.ndarray]) -> np.ndarray:
    """The output of no sequences, or of no places in sequences."""
    width = min(value.shape[1] for value in values if value.ndim > 1)
    sizes = [width if size is None else size for size in spec.shape[1:]]
    return np.zeros([len(values[0]), *sizes], spec.dtype.as_numpy_dtype)

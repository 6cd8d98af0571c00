"""This project's exported models: how they are made, and functions that return what is timed.

From token ids, or from text, to the last layer's hidden states, without padding. Imports what it
measures where it is used, so that a runtime may be missing. What is returned may be called by
several threads at once.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.interleaved import run_command
from benchmarks.texts import random_features, texts
from common.machine import num_cores
from common.plugins import lazily

# Flags of export_savedmodel.py.
EXPORTS: dict[str, list[str]] = {"saved": []}
EXPORTS |= {w: ["--format", "litert", "--weights", w] for w in ("float32", "float16", "int8")}
_REQUESTS = 4  # of a client, in a row


def prepare(size: str, folder: str, needed: Collection[str], kind: str = "", *flags: str) -> None:
    """Writes a model of random weights to `folder`/model, and what is `needed` beside it.

    Args:
        needed: of `EXPORTS` and "huggingface".
        kind: "classifier", or "" of a pre-trained model.
        flags: of all exports.
    """
    model = f"{folder}/model"
    run_command("benchmarks.random_model", size, model, kind)
    for name in needed:
        command = ["export_savedmodel", "--model_dir", model, "--output_dir", f"{folder}/{name}"]
        if name == "huggingface":
            command = ["checkpoints.convert", "--target", name, "--input", model]
            command += ["--output", f"{folder}/{name}"]
        run_command(*command, *EXPORTS.get(name, ()), *(flags if name in EXPORTS else ()))


def saved_model(folder: str, batch: int, length: int, text: bool = False):
    """The signature `token_ids`, or `embeddings`."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  the graph's tokenizer

    model = tf.saved_model.load(folder)
    ask = model.signatures["embeddings" if text else "token_ids"]
    inputs = {"text": texts(batch, length)} if text else random_features(batch, length)

    def run() -> np.ndarray:
        values = {name: tf.constant(value) for name, value in inputs.items()}
        return ask(**values)["tokens"].numpy()

    vars(run).update(model=model)  # signatures do not keep it alive
    return with_vector(run)


def litert(folder: str, batch: int, length: int, text: bool = False):
    """The file's `encode`; or `embeddings` as `serving.predict` asks, whose graph tokenizes."""
    path = f"{folder}/model.tflite"
    if text:
        import tensorflow as tf

        load_signatures = lazily("serving.litert:load_signatures")
        signatures, strings = load_signatures(path), texts(batch, length)
        graph = signatures["embeddings"].trace()

        def run() -> np.ndarray:
            return graph(text=tf.constant(strings))["tokens"].numpy()

        vars(run).update(model=signatures)  # graphs do not keep it alive
    else:
        from ai_edge_litert.interpreter import Interpreter

        interpreter, lock = Interpreter(path, num_threads=num_cores()), threading.Lock()
        ask, inputs = interpreter.get_signature_runner("encode"), random_features(batch, length)

        def run() -> np.ndarray:
            with lock:
                return ask(**inputs)["sequence"]

    return with_vector(run)


def with_vector(run):
    """Adds the first token's vector to the facts of what returns hidden states [B, S, D]."""
    run.facts = {"vector": run()[0, 0].tolist()}
    return run


def under_load(target: str, arguments: dict[str, Any], clients: int):
    """Requests of concurrent clients: threads that send a few each, one after the other.

    The facts have `latencies`, seconds of every request since `begin`.

    Args:
        target: as of `interleaved.System`, with its arguments; what it returns is a request.
        clients: number of threads.
    """
    module, function = target.split(":")
    ask = getattr(importlib.import_module(module), function)(**arguments)
    latencies: list[float] = []

    def client(number: int) -> None:
        for _ in range(_REQUESTS):
            start = time.perf_counter()
            ask()
            latencies.append(time.perf_counter() - start)

    def run() -> None:
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))

    ask()
    said = {"latencies": latencies, "requests": clients * _REQUESTS}
    vars(run).update(facts={**getattr(ask, "facts", {}), **said}, begin=latencies.clear)
    return run

"""This project's exported models, each a function that returns what is timed.

From token ids, or from text, to the last layer's hidden states, without padding. Imports what it
measures where it is used, so that a runtime may be missing. What is returned may be called by
several threads at once.
"""

from __future__ import annotations

import importlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.texts import texts
from machine import num_cores
from plugins import lazily

_REQUESTS = 4  # of a client, in a row


def saved_model(folder: str, batch: int, length: int, text: bool = False):
    """The signature `token_ids`, or `embeddings`."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  the graph's tokenizer

    model = tf.saved_model.load(folder)
    ask = model.signatures["embeddings" if text else "token_ids"]
    inputs = {"text": texts(batch, length)} if text else random_features(batch, length)

    def run():
        values = {name: tf.constant(value) for name, value in inputs.items()}
        return ask(**values)["tokens"].numpy()

    run.model = model  # signatures do not keep it alive
    run.facts = {"vector": run()[0, 0].tolist()}
    return run


def litert(folder: str, batch: int, length: int, text: bool = False):
    """The file's `encode`; or `embeddings` as `serving.predict` asks, whose graph tokenizes."""
    path = f"{folder}/model.tflite"
    if text:
        import tensorflow as tf

        load_signatures = lazily("serving.litert:load_signatures")
        signatures, strings = load_signatures(path), texts(batch, length)
        graph = signatures["embeddings"].trace()

        def run():
            return graph(text=tf.constant(strings))["tokens"].numpy()

        run.model = signatures  # graphs do not keep it alive
    else:
        from ai_edge_litert.interpreter import Interpreter

        interpreter, lock = Interpreter(path, num_threads=num_cores()), threading.Lock()
        ask, inputs = interpreter.get_signature_runner("encode"), random_features(batch, length)

        def run():
            with lock:
                return ask(**inputs)["sequence"]

    run.facts = {"vector": run()[0, 0].tolist()}
    return run


def under_load(target: str, arguments: dict[str, Any], clients: int):
    """Requests of concurrent clients: threads that send a few each, one after the other.

    The facts have `latencies`, seconds of every request since `begin`.

    Args:
        target: as of `interleaved.System`; what it returns is a request.
        arguments: of it.
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

    def run():
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))

    ask()
    said = {"latencies": latencies, "requests": clients * _REQUESTS}
    run.facts, run.begin = {**getattr(ask, "facts", {}), **said}, latencies.clear
    return run


def random_features(batch: int, length: int) -> dict[str, np.ndarray]:
    """Ordinary tokens of every size's vocabulary, int32 [batch, length]."""
    ids = np.random.default_rng(0).integers(1000, 8000, [batch, length], np.int32)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}

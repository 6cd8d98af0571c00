"""This project's exported models: how they are made, and functions that return what is timed.

From token ids to the last layer's hidden states, without padding. Imports what it measures where it
is used, so that a runtime may be missing.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from convbert.benchmarks.interleaved import run_command
from convbert.benchmarks.texts import random_features
from convbert.common.machine import num_cores

# Flags of `convbert export`.
EXPORTS: dict[str, list[str]] = {"saved": []}
EXPORTS |= {w: ["--format", "litert", "--weights", w] for w in ("float32", "int8")}


def prepare(size: str, folder: str, needed: Collection[str], kind: str = "", *flags: str) -> None:
    """Writes a model of random weights to `folder`/model, and what is `needed` beside it.

    `needed` are names of `EXPORTS`, or "huggingface"; `kind` is "classifier", "embedding" or ""
    (pre-trained); `flags` are those of all exports.
    """
    model = f"{folder}/model"
    run_command("convbert.benchmarks.random_model", size, model, kind)
    for name in needed:
        command = ["convbert", "export", "--model_dir", model, "--output_dir", f"{folder}/{name}"]
        if name == "huggingface":
            command = ["convbert.checkpoints.convert", "--target", name, "--input", model]
            command += ["--output", f"{folder}/{name}"]
        run_command(*command, *EXPORTS.get(name, ()), *(flags if name in EXPORTS else ()))


def saved_model(folder: str, batch: int, length: int):
    """The signature `token_ids`."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  the graph's tokenizer

    model, inputs = tf.saved_model.load(folder), random_features(batch, length)
    ask = model.signatures["token_ids"]

    def run() -> np.ndarray:
        values = {name: tf.constant(value) for name, value in inputs.items()}
        return ask(**values)["tokens"].numpy()

    vars(run).update(model=model)  # signatures do not keep it alive
    return with_vector(run)


def litert(folder: str, batch: int, length: int):
    """The file's `encode`."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(f"{folder}/model.tflite", num_threads=num_cores())
    ask, inputs = interpreter.get_signature_runner("encode"), random_features(batch, length)
    return with_vector(lambda: ask(**inputs)["sequence"])


def with_vector(run):
    """Adds the first token's vector to the facts of what returns hidden states [B, S, D]."""
    run.facts = {"vector": run()[0, 0].tolist()}
    return run

"""Exported models, each a function that returns what is timed: SavedModel, LiteRT, ONNX Runtime.

Imports what it measures where it is used, so that a runtime may be missing.
"""

from __future__ import annotations

import tempfile

import numpy as np

from machine import num_cores


def saved_model(folder: str, batch: int, length: int):
    """Token ids to the last layer's hidden states, by `token_ids`, without padding."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  the graph's tokenizer

    model = tf.saved_model.load(folder)
    ask, inputs = model.signatures["token_ids"], random_features(batch, length)

    def run():
        values = {name: tf.constant(value) for name, value in inputs.items()}
        return ask(**values)["tokens"].numpy()

    run.model = model  # signatures do not keep it alive
    run.facts = {"vector": run()[0, 0].tolist()}
    return run


def litert(path: str, batch: int, length: int):
    """Token ids to the last layer's hidden states, by `encode`, without padding."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=num_cores())
    ask, inputs = interpreter.get_signature_runner("encode"), random_features(batch, length)

    def run():
        return ask(**inputs)["sequence"]

    run.facts = {"vector": run()[0, 0].tolist()}
    return run


def onnx_runtime(folder: str, batch: int, length: int, int8: bool = False):
    """Token ids to the last layer's hidden states, by Hugging Face's model in ONNX Runtime.

    Args:
        folder: of a model of Hugging Face's format.
        int8: whether weights are, and activations become, 8-bit integers ("dynamic quantization").
    """
    import onnxruntime
    import torch
    from onnxruntime.quantization import quantize_dynamic
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            return self.model(ids, attention_mask=mask).last_hidden_state

    model = Encoder(AutoModel.from_pretrained(folder)).eval()
    ids = torch.ones(2, 16, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as work:
        path, axes = f"{work}/model.onnx", {0: "batch", 1: "length"}
        names = {"input_names": ["ids", "mask"], "output_names": ["hidden"]}
        shapes = {"ids": axes, "mask": axes}
        torch.onnx.export(model, (ids, ids), path, dynamo=True, dynamic_shapes=shapes, **names)
        if int8:
            quantize_dynamic(path, f"{work}/int8.onnx")
            path = f"{work}/int8.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_cores()
        session = onnxruntime.InferenceSession(path, options)
    ids = random_features(batch, length)["input_ids"].astype(np.int64)

    def run():
        return session.run(["hidden"], {"ids": ids, "mask": np.ones_like(ids)})[0]

    run.facts = {"vector": run()[0, 0].tolist()}
    return run


def random_features(batch: int, length: int) -> dict[str, np.ndarray]:
    """Ordinary tokens, int32 [batch, length]."""
    ids = np.random.default_rng(0).integers(1000, 30000, [batch, length], np.int32)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}

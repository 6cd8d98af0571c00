"""Hugging Face's models in ONNX Runtime: their files, and what is timed.

    python -m convbert.benchmarks.onnx_runtime FOLDER

writes the files beside a model of Hugging Face's format; none if packages are missing.
"""

from __future__ import annotations

import importlib.util
import os
import sys

import numpy as np

from convbert.benchmarks.served import with_vector
from convbert.benchmarks.texts import random_features
from convbert.common.machine import num_cores

# "Dynamic quantization": weights are, and activations become, 8-bit integers.
MODEL, INT8 = "model.onnx", "int8.onnx"
_PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")


def hidden_states(folder: str, batch: int, length: int, int8: bool = False):
    """As `benchmarks.served`; `int8`: of the quantized file."""
    import onnxruntime

    path = f"{folder}/{INT8 if int8 else MODEL}"
    if not os.path.exists(path):
        raise ModuleNotFoundError(name="onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_cores()
    session = onnxruntime.InferenceSession(path, options)
    ids = random_features(batch, length)["input_ids"].astype(np.int64)
    inputs = {"ids": ids, "mask": np.ones_like(ids)}
    return with_vector(lambda: session.run(["hidden"], inputs)[0])


def export(folder: str) -> None:
    """Writes `MODEL` and `INT8`: `ids` and `mask`, int64 [B, S], to `hidden`, float32 [B, S, D]."""
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
    # Two tensors: of one that is given twice, the exporter makes one input.
    inputs = (torch.ones(2, 16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64))
    names = {"input_names": ["ids", "mask"], "output_names": ["hidden"]}
    axes = {0: "batch", 1: "length"}
    shapes, path = {"ids": axes, "mask": axes}, f"{folder}/{MODEL}"
    torch.onnx.export(model, inputs, path, dynamo=True, dynamic_shapes=shapes, **names)
    quantize_dynamic(path, f"{folder}/{INT8}")


if __name__ == "__main__":
    if all(map(importlib.util.find_spec, _PACKAGES)):
        export(sys.argv[1])

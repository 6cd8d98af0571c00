"""The step that benchmarks.gpu_export wrote, run by JAX on its device: a GPU if there is one.

Imports no TensorFlow, and JAX where it is used, so that it may be missing.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import files
from errors import InputError


def exported_step(folder: str, steps: int) -> Callable[[], float]:
    """`steps` training steps; returns the last loss.

    Its fact `loss_difference` is the largest relative one of the first losses from TensorFlow's,
    NaN if those are not known.
    """
    step = ExportedStep(folder)
    losses = step.description["losses"]
    differences = [abs(_value(step.take()) / loss - 1) for loss in losses]

    def run():
        for _ in range(steps):
            loss = step.take()
        return _value(loss)  # once the last step is done

    run.facts = {
        "device": step.device.device_kind,
        "loss_difference": max(differences, default=math.nan),
    }
    return run


def matrix_product(side: int, dtype: str, products: int = 10) -> Callable[[], Any]:
    """Products of two square matrices, as JAX takes them by default."""
    import jax

    left, right = jax.random.normal(jax.random.key(0), [2, side, side], dtype)
    multiply = jax.jit(jax.numpy.matmul)

    def run():
        for _ in range(products):
            product = multiply(left, right)
        return product.block_until_ready()

    run.facts = {"device": jax.devices()[0].device_kind, "flops": 2 * side**3 * products}
    return run


class ExportedStep:
    """A training step that gpu_export wrote, and its variables, on JAX's default device."""

    def __init__(self, folder: str):
        import jax

        jax.config.update("jax_enable_x64", True)  # the count of steps is an int64
        self.description = files.read_json(f"{folder}/step.json")
        self.device = jax.devices()[0]
        with gzip.open(f"{folder}/step.hlo.gz") as file:
            self._program = _compile(file.read(), self.device)
        with np.load(f"{folder}/values.npz", allow_pickle=False) as file:
            stored = dict(file)
        parameters = self.description["parameters"]
        values = [jax.device_put(initial_value(p, stored), self.device) for p in parameters]
        split = self.description["num_features"]
        self._features, self.variables = values[:split], values[split:]

    def take(self):
        """Takes a step, without waiting for it; returns the loss metric, a float32 [2] array.

        `variables` are new arrays then, in the memory of those before, which are deleted.
        """
        results = self._program.execute_sharded([*self._features, *self.variables])
        results = [parts[0] for parts in results.disassemble_into_single_device_arrays()]
        metrics = self.description["metrics"]
        new = results[len(metrics) :]
        if [(v.shape, v.dtype) for v in new] != [(v.shape, v.dtype) for v in self.variables]:
            raise InputError("the program's results should be its metrics and all its variables")
        self.variables = new
        return results[metrics.index("loss")]


def initial_value(parameter: dict[str, Any], stored: dict[str, np.ndarray]) -> np.ndarray:
    """The first value of a parameter that step.json describes.

    Args:
        parameter: has `name`, `shape`, `dtype`, and either `fill`, the value of all elements, or
            `draw`, the seed and deviation of normally distributed ones, or neither.
        stored: the values, by name, of those that have neither.
    """
    shape, dtype = parameter["shape"], parameter["dtype"]
    if "fill" in parameter:
        return np.full(shape, parameter["fill"], dtype)
    if "draw" not in parameter:
        return stored[parameter["name"]]
    draw = np.random.default_rng(parameter["draw"]["seed"])
    return draw.standard_normal(shape, dtype) * np.asarray(parameter["draw"]["deviation"], dtype)


def _compile(program: bytes, device):
    """An executable of a serialised HLO module, for which JAX has no public function."""
    from jax.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(program))
        devices, options = _jax.DeviceList((device,)), _jax.CompileOptions()
        return device.client.compile_and_load(module, devices, options)


def _value(loss) -> float:
    """The loss of `ExportedStep.take`, when it is there."""
    return float(np.asarray(loss)[0])

"""Compiles a pre-training step for a TPU or GPU on a machine that has neither.

    python -m venv .venv-tpu && .venv-tpu/bin/pip install -r requirements-tpu-compile.txt
    python -m benchmarks.tpu_compile --python .venv-tpu/bin/python
    python -m benchmarks.tpu_compile --python .venv-tpu/bin/python --device h100 --scopes 12

TensorFlow writes the step as HLO, with the kernels' forms for accelerators, and JAX compiles it in
a process and an environment of its own (benchmarks.program_compile). A row takes minutes and has

- compile s: seconds of the compiler alone, on this machine;
- arguments, temporaries, code, and what the device needs for all of it: exact, by the compiler's
  layout. Weights that are updated in place count once;
- Mcycles: the TPU compiler's own estimate of the step, millions of cycles;
- launches: kernels that a GPU starts, and how many of them clip gradients and update weights;
- host: operations that wait for the host.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf
from absl import app, flags

from benchmarks import ours, program_compile
from benchmarks.interleaved import Result
from benchmarks.table import PRECISIONS, Report
from common.errors import InputError, main_with_clear_errors
from model.kernels import for_accelerator

_PYTHON = flags.DEFINE_string("python", None, "Interpreter of an environment with JAX.")
_DEVICE = flags.DEFINE_enum(
    "device", "v5e", [*program_compile.TPUS, *program_compile.GPUS], "Device compiled for."
)
_SYSTEMS = flags.DEFINE_multi_enum(
    "systems", ["ConvBERT", "ELECTRA", "BERT"], list(ours.SYSTEMS), "Systems, one each time."
)
_SIZES = flags.DEFINE_list("sizes", ["small"], "Named sizes of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.", lower_bound=1)
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence.", lower_bound=8)
_PRECISION = flags.DEFINE_enum("precision", PRECISIONS[1], PRECISIONS, "Compute dtype policy.")
_SCOPES = flags.DEFINE_integer("scopes", 0, "Number of largest scopes listed.", lower_bound=0)
_COLUMNS = {"step": "", "device": "", "compile s": ".0f", "arguments GB": ".2f"}
_COLUMNS |= {"temporaries GB": ".2f", "code MB": ".0f", "GB needed": ".2f", "Mcycles": ".1f"}
_COLUMNS |= {"launches": ",d", "clip, update": "", "host": ""}


def main(argv: list[str]) -> None:
    """Prints a row per size and system."""
    if not _PYTHON.value or not os.path.exists(_PYTHON.value):
        raise InputError(
            "--python should name an interpreter with jax, see requirements-tpu-compile.txt."
            f" Received: {_PYTHON.value!r}"
        )
    report = Report(_COLUMNS)
    notes: list[str] = []
    for size in _SIZES.value:
        for system in _SYSTEMS.value:
            name = f"{system} {size}, {_BATCH.value} x {_LENGTH.value}, {_PRECISION.value}"
            shape = (size, _BATCH.value, _LENGTH.value, _PRECISION.value)
            found = compile_step(_PYTHON.value, _DEVICE.value, *shape, **ours.SYSTEMS[system])
            report.row(name, _DEVICE.value, *cells(found))
            report.missing({name: Result(missing=found.get("failed", ""))})
            notes += lines(name, found, _SCOPES.value)
    report.end(*dict.fromkeys(notes))


def compile_step(python: str, device: str, *shape: Any, **hparams: Any) -> dict[str, Any]:
    """Returns the result of `program_compile.compiled`, or `failed` with the reason.

    `shape` and `hparams` are the arguments of `ours.step_hparams`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.hlo")
        export(path, "tpu" if device in program_compile.TPUS else "gpu", *shape, **hparams)
        command = [python, "-m", "benchmarks.program_compile", path, device]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        return {"failed": f"status {done.returncode}: {said[-1]:.300}"}
    return json.loads(done.stdout.splitlines()[-1])


def export(path: str, platform: str, *shape: Any, **hparams: Any) -> None:
    """Writes a serialized HloModuleProto of a step in the kernels' forms for a "tpu" or "gpu"."""
    with for_accelerator(platform):
        resolved = ours.step_hparams(*shape, **hparams)
        step = tf.function(
            ours.step_trainer(resolved)._replica_step_fn, jit_compile=True, autograph=False
        )
        features = tf.nest.map_structure(tf.constant, ours.step_features(resolved))
        hlo = step.experimental_get_compiler_ir(features)(stage="hlo_serialized")
    with open(path, "wb") as file:
        file.write(hlo)


def cells(found: dict[str, Any]) -> list[str | float]:
    """The cells of a row after step and device; NaN where the compiler failed."""
    if "failed" in found:
        return [math.nan] * 7 + ["", ""]
    new = found["outputs"] - found["aliased"]  # the others take the place of arguments
    needed = found["arguments"] + new + found["temporaries"] + found["code"]
    memory = (found["arguments"] / 1e9, found["temporaries"] / 1e9, found["code"] / 1e6)
    counts, launches = (found["cycles"] / 1e6, "", ""), found["launches"]
    if not found["cycles"]:  # by a GPU's compiler
        counts = ("", launches["total"], f"{launches['clip']}, {launches['update']}")
    return [found["seconds"], *memory, needed / 1e9, *counts, ", ".join(found["host"]) or "none"]


def lines(name: str, found: dict[str, Any], scopes: int) -> Sequence[str]:
    """Lines below the table: the largest scopes, loops that count once, versions."""
    if "failed" in found:
        return []
    said = [f"compiled with {found['versions']}"]
    if found["unknown_loops"]:
        said.append(f"{name}: {found['unknown_loops']} loops of unknown length count once")
    largest = list(found["scopes"].items())[:scopes]
    rows = [f"{c:12,} cycles {n:6,} kernels  {scope}" for scope, (c, n) in largest]
    return [*said, *(["\n".join([f"{name}:", *rows])] if rows else [])]


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

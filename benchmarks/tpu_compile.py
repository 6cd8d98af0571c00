"""Compiles a pre-training step for a TPU or GPU on a machine that has neither.

    python -m venv .venv-tpu && .venv-tpu/bin/pip install -r requirements-tpu-compile.txt
    python -m convbert.benchmarks.tpu_compile --python .venv-tpu/bin/python
    python -m convbert.benchmarks.tpu_compile --python .venv-tpu/bin/python --device h100

TensorFlow writes the step as HLO, with the kernels' forms for accelerators. The interpreter of
--python runs this file again, as `FILE DEVICE`, and compiles it with JAX, without TensorFlow and
this package. A row takes minutes and has

- compile s: seconds of the compiler alone, on this machine;
- GB needed: of the device, exact, by the compiler's layout: arguments, temporaries, code, and
  results that do not take an argument's place;
- Mcycles: the TPU compiler's own estimate of the step, millions of cycles;
- launches: kernels that a GPU starts.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

TPUS = {"v3": "v3:2x2", "v5e": "v5e:2x2"}  # the smallest host, for JAX's `get_topology_desc`
# XLA's GpuTargetConfigProto in text form. Values: CUDA programming guide (compute capability 9.0)
# and NVIDIA's data sheet of the H100 SXM (multiprocessors, clock, memory).
_H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 } core_count: 132 fpus_per_core: 128
  clock_rate_ghz: 1.98 threads_per_warp: 32 threads_per_block_limit: 1024
  threads_per_core_limit: 2048 registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 l2_cache_size: 52428800
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3350000000000 device_memory_size: 80000000000
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
GPUS = {"h100": _H100}

# Without these libtpu looks for a TPU and for the other machines of its slice.
_ENVIRONMENT = {
    **{"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"},
    **{"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0", "TPU_LOG_DIR": "disabled"},
}

# An instruction of a module's text: its opcode, and what follows.
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([\w\-]+)\((.*)$", re.MULTILINE
)
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\n((?:.*\n)*?)\}", re.MULTILINE)
_CALLED = re.compile(r"(?:to_apply|(?:true|false)_computation|branch_computations)=(\{.*?\}|\S+)")
_CONDITION, _BODY = re.compile(r"condition=%?([\w.\-]+)"), re.compile(r"body=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_INTEGER = re.compile(r"= [su]\d+\[\]\S* constant\((\d+)\)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_SCOPE = re.compile(r'op_name="([^"]*)"')
# Parameters, tuples and views start no kernel; what contains others is counted by its contents.
_NO_KERNEL: tuple[str, ...] = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
_NO_KERNEL += ("after-all", "while", "call", "conditional")


class Module:
    """The text of a compiled module; instructions in a loop count as often as they run."""

    def __init__(self, text: str):
        found = _COMPUTATION.findall(text)
        self._instructions = {name: _INSTRUCTION.findall(body) for _, name, body in found}
        self._bodies = {name: body for _, name, body in found}
        # How often each computation runs, but the insides of kernels. All branches count.
        self.executions: collections.Counter[str] = collections.Counter()
        self.unknown_loops = 0  # whose length the text does not give; they count once
        (entry,) = (name for entry, name, _ in found if entry)
        self._visit(entry, 1)

    def _visit(self, name: str, times: int) -> None:
        self.executions[name] += times
        for opcode, rest in self._instructions[name]:
            if opcode == "while":
                (body,) = _BODY.findall(rest)
                self._visit(body, times * self._trips(rest))
            elif opcode in ("call", "conditional"):
                for called in re.findall(r"[\w.\-]+", " ".join(_CALLED.findall(rest))):
                    self._visit(called, times)

    def _trips(self, rest: str) -> int:
        """How often the body of a `while` runs; its counter begins at 0."""
        if known := _TRIPS.search(rest):
            return int(known[1])
        (name,) = _CONDITION.findall(rest)
        condition = self._bodies[name]
        limits = [int(limit) for limit in _INTEGER.findall(condition)]
        if "direction=LT" in condition and limits:
            return min(limits)
        self.unknown_loops += 1
        return 1

    def kernels(self) -> Iterator[tuple[str, int, int]]:
        """Scope, estimated cycles (0 on GPUs) and number of runs of each kernel.

        Those of clipping have "clip_gradients/" in their scope, of the update "update_weights/".
        """
        for name, times in self.executions.items():
            for opcode, rest in self._instructions[name]:
                if opcode not in _NO_KERNEL and not opcode.endswith("-done"):
                    scope, cycles = _SCOPE.search(rest), _CYCLES.search(rest)
                    yield scope[1] if scope else opcode, int(cycles[1]) if cycles else 0, times


def compiled(path: str, device: str) -> dict[str, Any]:
    """Compiles a serialized HloModuleProto for a device, with JAX; returns the statistics.

    Returns:
        `seconds` of compilation; `bytes` that are needed; `cycles` as the TPU compiler estimates
        them; `launches` and `unknown_loops` (see `Module`); `versions`.
    """
    os.environ.update(_ENVIRONMENT)
    import numpy as np
    from jax.experimental import topologies
    from jaxlib import _jax, xla_client

    if device in TPUS:
        topology = topologies.get_topology_desc(topology_name=TPUS[device], platform="tpu")
    else:
        target = {"target_config": GPUS[device], "topology": "1x1x1"}
        topology = topologies.get_topology_desc("", "cuda", **target)
    with open(path, "rb") as file:
        program = _stablehlo(file.read())
    one = topology.devices[0]
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[one.id]]))
    begin = time.monotonic()  # JAX has no public function for this
    executable = one.client.compile(program, _jax.DeviceList((one,)), options)
    seconds = time.monotonic() - begin
    memory = executable.get_compiled_memory_stats()
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes
    temporary = memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
    module = Module(executable.hlo_modules()[0].to_string())
    kernels = [(cycles, times) for _, cycles, times in module.kernels()]
    packages = ("jax", "libtpu" if device in TPUS else "jax-cuda12-plugin")
    return {
        "seconds": seconds,
        "bytes": memory.argument_size_in_bytes + new + temporary,
        "cycles": sum(cycles * times for cycles, times in kernels),
        "launches": sum(times for _, times in kernels),
        "unknown_loops": module.unknown_loops,
        "versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
    }


def _stablehlo(hlo: bytes):
    """The module of a serialized HloModuleProto."""
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        copies = []

        def collect(operation):
            # TensorFlow's copies of results, an operation that StableHLO does not have.
            if operation.name == "mhlo.copy":
                copies.append(operation)
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect)
        for copy in copies:
            copy.results[0].replace_all_uses_with(copy.operands[0])
        for copy in reversed(copies):
            copy.erase()
    return module


def compile_step(python: str, device: str, *shape: Any, **hparams: Any) -> dict[str, Any]:
    """Returns the result of `compiled`, or `failed` with the reason.

    `shape` and `hparams` are the arguments of `ours.step_hparams`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.hlo")
        export(path, "tpu" if device in TPUS else "gpu", *shape, **hparams)
        command = [python, __file__, path, device]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        return {"failed": f"status {done.returncode}: {said[-1]:.300}"}
    return json.loads(done.stdout.splitlines()[-1])


def export(path: str, platform: str, *shape: Any, **hparams: Any) -> None:
    """Writes a serialized HloModuleProto of a step in the kernels' forms for a "tpu" or "gpu"."""
    import tensorflow as tf

    from convbert.benchmarks import ours
    from convbert.common.backend import for_accelerator

    with for_accelerator(platform):
        resolved = ours.step_hparams(*shape, **hparams)
        replica_step = ours.step_trainer(resolved)._replica_step_fn
        step = tf.function(replica_step, jit_compile=True, autograph=False)
        features = tf.nest.map_structure(tf.constant, ours.step_features(resolved))
        hlo = step.experimental_get_compiler_ir(features)(stage="hlo_serialized")
    with open(path, "wb") as file:
        file.write(hlo)


def main(argv: list[str]) -> None:
    """Prints a row per system."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    from convbert.benchmarks import ours
    from convbert.benchmarks.interleaved import Result
    from convbert.benchmarks.table import PRECISIONS, Report
    from convbert.common.errors import InputError

    parser = argparse.ArgumentParser(prog="python -m convbert.benchmarks.tpu_compile")
    parser.add_argument("--python", default="", help="interpreter of an environment with JAX")
    parser.add_argument("--device", default="v5e", choices=[*TPUS, *GPUS])
    parser.add_argument(
        "--systems", nargs="+", default=["ConvBERT", "ELECTRA", "BERT"], choices=ours.SYSTEMS
    )
    parser.add_argument("--size", default="small", help="named size of ConvBERT")
    parser.add_argument("--batch", type=int, default=32, help="sequences of a step")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--precision", default=PRECISIONS[1], choices=PRECISIONS)
    given = parser.parse_args(argv[1:])
    if not os.path.exists(given.python):
        expected = "an interpreter with jax, see requirements-tpu-compile.txt"
        raise InputError(f"--python should name {expected}. Received: {given.python!r}")
    columns = {"step": "", "device": "", "compile s": ".0f", "GB needed": ".2f"}
    report = Report({**columns, "Mcycles": ".1f", "launches": ",d"})
    notes: list[str] = []
    shape = (given.size, given.batch, given.length, given.precision)
    for system in given.systems:
        found = compile_step(given.python, given.device, *shape, **ours.SYSTEMS[system])
        report.row(f"{system} {given.size}", given.device, *cells(found))
        report.missing({system: Result(missing=found.get("failed", ""))})
        if found.get("unknown_loops"):
            notes.append(f"{system}: {found['unknown_loops']} loops of unknown length count once")
        notes.append(f"compiled with {found.get('versions')}")
    report.end(*dict.fromkeys(notes))


def cells(found: dict[str, Any]) -> list[str | float]:
    """The cells of a row after step and device; NaN where the compiler failed."""
    if "failed" in found:
        return [math.nan] * 4
    # A GPU's compiler has no cycles.
    counts = (found["cycles"] / 1e6, "") if found["cycles"] else ("", found["launches"])
    return [found["seconds"], found["bytes"] / 1e9, *counts]


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[2] in (*TPUS, *GPUS) and not sys.argv[1].startswith("--"):
        print(json.dumps(compiled(*sys.argv[1:])))
    else:
        from convbert.common.errors import main_with_clear_errors

        main_with_clear_errors(main, takes_arguments=True)(sys.argv)

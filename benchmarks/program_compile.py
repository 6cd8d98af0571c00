"""Compiles an XLA program for a TPU or GPU that is not here. Needs jax and no TensorFlow.

    python -m benchmarks.program_compile FILE DEVICE

FILE is a serialized HloModuleProto. The last line of the output is a JSON object, see `compiled`.
TPUs need the package libtpu, GPUs jax-cuda12-plugin[with-cuda]; requirements-tpu-compile.txt.
"""

from __future__ import annotations

import collections
import importlib.metadata
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

from common.settings import present

# Topologies of the smallest host, for JAX's `get_topology_desc`.
TPUS = {"v2": "v2:2x2", "v3": "v3:2x2", "v4": "v4:2x2x1"}
TPUS |= {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}

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
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_HOST = ("infeed", "outfeed", "send", "recv", "send-done", "recv-done")
# Parameters, tuples and views start no kernel; what contains others is counted by its contents.
_NO_KERNEL: tuple[str, ...] = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
_NO_KERNEL += ("after-all", "while", "call", "conditional")


class Module:
    """The text of a compiled module; instructions in a loop count as often as they run."""

    def __init__(self, text: str):
        self._text = text
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
                self._visit(present(_BODY.search(rest))[1], times * self._trips(rest))
            elif opcode in ("call", "conditional"):
                for called in re.findall(r"[\w.\-]+", " ".join(_CALLED.findall(rest))):
                    self._visit(called, times)

    def _trips(self, rest: str) -> int:
        """How often the body of a `while` runs; its counter begins at 0."""
        if known := _TRIPS.search(rest):
            return int(known[1])
        condition = self._bodies[present(_CONDITION.search(rest))[1]]
        limits = [int(limit) for limit in _INTEGER.findall(condition)]
        if "direction=LT" in condition and limits:
            return min(limits)
        self.unknown_loops += 1
        return 1

    def kernels(self) -> Iterator[tuple[str, int, int]]:
        """Scope, estimated cycles (0 on GPUs) and number of runs of each kernel."""
        for name, times in self.executions.items():
            for opcode, rest in self._instructions[name]:
                if opcode not in _NO_KERNEL and not opcode.endswith("-done"):
                    scope, cycles = _SCOPE.search(rest), _CYCLES.search(rest)
                    yield scope[1] if scope else opcode, int(cycles[1]) if cycles else 0, times

    def scopes(self) -> dict[str, tuple[int, int]]:
        """Scope, four deep and with # for numbers, to (cycles, kernels); the largest first."""
        cycles: collections.Counter[str] = collections.Counter()
        kernels: collections.Counter[str] = collections.Counter()
        for scope, each, times in self.kernels():
            name = "/".join(re.sub(r"\d+", "#", scope).split("/")[:4])
            cycles[name] += each * times
            kernels[name] += times
        found = {name: (cycles[name], kernels[name]) for name in kernels}
        return dict(sorted(found.items(), key=lambda item: item[1], reverse=True))

    def launches(self) -> dict[str, int]:
        """Number of kernels: all, and those in the scopes of clipping and of the update."""
        scopes = {"total": "", "clip": "clip_gradients/", "update": "update_weights/"}
        return {
            name: sum(times for scope, _, times in self.kernels() if part in scope)
            for name, part in scopes.items()
        }

    def host_operations(self) -> list[str]:
        """The operations that exchange data with the host, by opcode or target."""
        found = set()
        for opcode, rest in _INSTRUCTION.findall(self._text):
            target = _TARGET.search(rest) if opcode == "custom-call" else None
            if opcode in _HOST or (target and re.search("[Hh]ost|callback", target[1])):
                found.add(target[1] if target else opcode)
        return sorted(found)


def compiled(path: str, device: str) -> dict[str, Any]:
    """Compiles an exported program for a device and returns the compiler's statistics.

    Returns:
        `seconds` of compilation; `arguments`, `outputs`, `aliased`, `temporaries`, `code` in
        bytes; `cycles` as the TPU compiler estimates them; `launches`, `scopes`, `host` and
        `unknown_loops` (see `Module`); `versions`.
    """
    os.environ.update(_ENVIRONMENT)
    target = _device(device)
    with open(path, "rb") as file:
        program = _stablehlo(file.read())
    begin = time.monotonic()
    executable = _compile(target, program)
    seconds = time.monotonic() - begin
    memory = executable.get_compiled_memory_stats()
    module = Module(executable.hlo_modules()[0].to_string())
    scopes = module.scopes()
    packages = ("jax", "libtpu" if device in TPUS else "jax-cuda12-plugin")
    return {
        "seconds": seconds,
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
        "cycles": sum(cycles for cycles, _ in scopes.values()),
        "launches": module.launches(),
        "scopes": dict(itertools.islice(scopes.items(), 40)),
        "host": module.host_operations(),
        "unknown_loops": module.unknown_loops,
        "versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
    }


def _device(name: str):
    """A device that programs can be compiled for and not run on."""
    from jax.experimental import topologies

    if name in TPUS:
        return topologies.get_topology_desc(topology_name=TPUS[name], platform="tpu").devices[0]
    options = {"target_config": GPUS[name], "topology": "1x1x1"}
    return topologies.get_topology_desc("", "cuda", **options).devices[0]


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


def _compile(device, module):
    """The executable, for which JAX has no public function."""
    import numpy as np
    from jaxlib import _jax, xla_client

    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    return device.client.compile(module, _jax.DeviceList((device,)), options)


if __name__ == "__main__":
    print(json.dumps(compiled(sys.argv[1], sys.argv[2])))

"""Compiles an exported program for a TPU or GPU that is not here. Needs jax, and no TensorFlow.

    python -m benchmarks.program_compile FILE CHIP REPLICAS

The last line of its output is a JSON object: what the compiler says of the program. TPUs need the
package libtpu, GPUs jax-cuda12-plugin[with-cuda]; see requirements-tpu-compile.txt.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import re
import sys
import time
from typing import Any

from benchmarks.chips import CHIPS, Chip
from benchmarks.hlo_text import Module

# libtpu looks for a TPU otherwise, and for the machines of its slice.
_ENVIRONMENT = {
    **{"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"},
    **{"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0", "TPU_LOG_DIR": "disabled"},
}
_NO_ROOM = re.compile(r"memory required for [\w ]*\(([\d.]+)([KMGT])\) exceeds available")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def compiled(path: str, chip: Chip, replicas: int) -> dict[str, Any]:
    """What the compiler says of a program.

    Returns:
        `seconds`; `arguments`, `outputs`, `aliased`, `temporaries`, `code`, in bytes; `flops`,
        `bytes` and `transcendentals` by XLA's cost analysis; `main_memory`, the bytes exchanged
        with it; `cycles`, by the estimate of a TPU's compiler; `scopes`, `launches` (of a GPU),
        `host`, `unknown_loops`, see `Module`; `sums` over devices; `versions`. Of a program that
        needs more memory than the device has: `seconds`, `versions` and the bytes `needed`.
    """
    os.environ.update(_ENVIRONMENT)
    client, devices = _devices(chip, replicas)
    with open(path, "rb") as file:
        program = _stablehlo(file.read())
    begin = time.monotonic()
    try:
        executable = _compile(client, devices, program)
    except Exception as error:
        needed = memory_required(str(error))
        if needed is None:
            raise
        seconds = time.monotonic() - begin
        return {"seconds": seconds, "needed": needed, "versions": _versions(chip)}
    seconds = time.monotonic() - begin
    memory = executable.get_compiled_memory_stats()
    compiled_module = executable.hlo_modules()[0]
    module = Module(compiled_module.to_string())
    scopes = module.scopes()
    cost = _cost(executable, compiled_module, module, chip)
    return {
        "seconds": seconds,
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
        "flops": cost["flops"],
        "bytes": cost["bytes accessed"],
        "main_memory": module.main_memory_bytes(),
        "transcendentals": cost.get("transcendentals", 0.0),
        "cycles": sum(cycles for cycles, _ in scopes.values()),
        "scopes": dict(itertools.islice(scopes.items(), 40)),
        "sums": module.all_reduces(),
        "host": module.host_operations(),
        "launches": module.launches() if chip.platform == "gpu" else None,
        "unknown_loops": module.unknown_loops,
        "versions": _versions(chip),
    }


def _devices(chip: Chip, replicas: int):
    """A client that compiles, and the devices of the program."""
    from jax.experimental import topologies

    if chip.platform == "tpu":
        topology = topologies.get_topology_desc(topology_name=chip.topology, platform="tpu")
    else:
        options = {"target_config": chip.target, "topology": chip.topology}
        topology = topologies.get_topology_desc("", "cuda", **options)
    devices = tuple(topology.devices[:replicas])
    return devices[0].client, devices


def _stablehlo(hlo: bytes):
    """The module of a serialised HloModuleProto."""
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        copies = []

        def collect(operation):
            # What TensorFlow puts between a result and its use; StableHLO has no such operation.
            if operation.name == "mhlo.copy":
                copies.append(operation)
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect)
        for copy in copies:
            copy.results[0].replace_all_uses_with(copy.operands[0])
        for copy in reversed(copies):
            copy.erase()
    return module


def _compile(client, devices, module):
    """The executable, for which JAX has no public function."""
    import numpy as np
    from jaxlib import _jax, xla_client

    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = len(devices), 1
    places = np.array([[device.id] for device in devices])
    options.device_assignment = xla_client.DeviceAssignment.create(places)
    return client.compile(module, _jax.DeviceList(devices), options)


def memory_required(message: str) -> float | None:
    """The bytes that a TPU's compiler could not find room for; None where an error is another."""
    found = _NO_ROOM.search(message)
    return float(found[1]) * _UNITS[found[2]] if found else None


def _versions(chip: Chip) -> str:
    """The packages that compile for a device."""
    package = {"tpu": "libtpu", "gpu": "jax-cuda12-plugin"}[chip.platform]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", package))


def _cost(executable, compiled_module, module: Module, chip: Chip) -> dict[str, float]:
    """XLA's cost analysis of what was compiled, with the bodies of loops as often as they run."""
    import jax
    from jaxlib import _hlo, _jax

    client = jax.devices("cpu")[0].client
    names = ("flops", "bytes accessed", "transcendentals")

    def costs(hlo_module) -> dict[str, float]:
        found = _jax.hlo_module_cost_analysis(client, hlo_module)
        return {name: found.get(name, 0.0) for name in names}

    once = costs(compiled_module)
    said = once
    if chip.platform == "tpu":  # GPUs' executables have none
        said = executable.cost_analysis()
        said = said[0] if isinstance(said, list) else said
    bodies = [name for name, times in module.executions.items() if times > 1]
    inside = {name: costs(_hlo.hlo_module_from_text(module.as_entry(name))) for name in bodies}
    total = dict(once)
    for body in bodies:
        for name in names:
            nested = sum(
                inside[inner][name] for inner in module.loop_bodies(body) if inner in inside
            )
            own = inside[body][name] - nested
            total[name] += (module.executions[body] - 1) * own
    # In the proportion that the analysis for any device gives to loops.
    return {name: said.get(name, 0.0) * total[name] / (once[name] or 1.0) for name in names}


if __name__ == "__main__":
    print(json.dumps(compiled(sys.argv[1], CHIPS[sys.argv[2]], int(sys.argv[3]))))

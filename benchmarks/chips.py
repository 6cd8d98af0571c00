"""Published peak rates of accelerators, and how the compiler is told of one. Needs no library.

A TPU "device" of XLA, which runs one program, is a core of v2 and v3 (two to a chip) and a chip of
the others. Rates are of a device.
"""

from __future__ import annotations

import dataclasses

# Of which programs get less: 15.48 GiB of 16 on v3, 15.75 on v5e, as their compilers say.
_RESERVED = 2**30 * 0.52
_CLOUD = "https://cloud.google.com/tpu/docs"
_PAPER = "Jouppi et al. 2020, A Domain-Specific Supercomputer for Training Deep Neural Networks"

# What XLA asks of a GPU that is not there, in the text form of its GpuTargetConfigProto. Numbers
# are those of the CUDA programming guide (compute capability 9.0: threads, registers, shared
# memory) and of NVIDIA's data sheet of the H100 SXM (multiprocessors, clock, memory).
_H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  l2_cache_size: 52428800
  memory_bandwidth: 3350000000000
  device_memory_size: 80000000000
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


@dataclasses.dataclass(frozen=True)
class Chip:
    """A device that programs are compiled for.

    Attributes:
        platform: "tpu" or "gpu".
        topology: what JAX's `get_topology_desc` calls the smallest host of it.
        devices: of that host.
        flops: peak operations per second of bfloat16 matrix products with float32 sums, dense.
        bandwidth: peak bytes per second from and to its memory.
        memory: bytes.
        source: of the three.
        target: the description of a GPU for the compiler.
    """

    platform: str
    topology: str
    devices: int
    flops: float
    bandwidth: float
    memory: float
    source: str
    target: str = ""

    @property
    def usable(self) -> float:
        """Bytes of memory that programs may take."""
        return self.memory - _RESERVED


def _tpu(topology, devices, teraflops, gigabytes_per_second, gibibytes, source, cores=1):
    """A TPU from the numbers of its chip, which has `cores` devices."""
    flops, bandwidth = 1e12 * teraflops / cores, 1e9 * gigabytes_per_second / cores
    return Chip("tpu", topology, devices, flops, bandwidth, 2**30 * gibibytes / cores, source)


CHIPS = {
    "v2": _tpu("v2:2x2", 8, 46, 700, 16, f"{_PAPER}, Table 3", cores=2),
    "v3": _tpu("v3:2x2", 8, 123, 900, 32, f"{_CLOUD}/v3", cores=2),
    "v4": _tpu("v4:2x2x1", 4, 275, 1200, 32, f"{_CLOUD}/v4"),
    "v5e": _tpu("v5e:2x2", 4, 197, 819, 16, f"{_CLOUD}/v5e"),
    "v5p": _tpu("v5p:2x2x1", 4, 459, 2765, 95, f"{_CLOUD}/v5p"),
    "v6e": _tpu("v6e:2x2", 4, 918, 1640, 32, f"{_CLOUD}/v6e"),
    "h100": Chip(
        "gpu",
        "1x1x1",
        1,
        989.4e12,
        3.35e12,
        80e9,
        "NVIDIA H100 Tensor Core GPU data sheet, SXM5, half of the rate with sparsity",
        _H100,
    ),
}


def of_platform(platform: str) -> list[str]:
    """The names of the devices of a platform, "tpu" or "gpu"."""
    return [name for name, chip in CHIPS.items() if chip.platform == platform]

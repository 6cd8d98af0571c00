"""Published peak rates of accelerators, for time and cost at a share of them."""

from __future__ import annotations

import dataclasses

from errors import InputError
from settings import did_you_mean


@dataclasses.dataclass(frozen=True)
class Device:
    """One accelerator: a GPU, or a chip of a TPU.

    Attributes:
        title: for tables.
        peak: matrix products without sparsity, FLOP/s, in bfloat16 (V100: float16).
        source: where the maker says so.
    """

    title: str
    peak: float
    source: str


DEVICES = {
    "h100": Device("H100 SXM", 989.4e12, "NVIDIA H100 data sheet: 1,979 with sparsity"),
    "a100": Device("A100", 312e12, "NVIDIA A100 data sheet"),
    "v100": Device("V100 SXM2", 125e12, "NVIDIA V100 data sheet, float16"),
    "tpu_v3": Device("TPU v3 chip", 123e12, "Google Cloud TPU documentation, v3"),
    "tpu_v4": Device("TPU v4 chip", 275e12, "Google Cloud TPU documentation, v4"),
    "tpu_v5e": Device("TPU v5e chip", 197e12, "Google Cloud TPU documentation, v5e"),
    "tpu_v5p": Device("TPU v5p chip", 459e12, "Google Cloud TPU documentation, v5p"),
}
# A v3 chip has two cores, and slices are named by their cores.
_SLICES = {"tpu_v3-8": ("tpu_v3", 4)}


@dataclasses.dataclass(frozen=True)
class Group:
    """Accelerators that share a batch.

    Attributes:
        name: as given: `h100`, `h100:8`, `tpu_v3-8`.
        device: what each of them is.
        count: how many there are.
    """

    name: str
    device: Device
    count: int

    @property
    def peak(self) -> float:
        """Of all together, FLOP/s."""
        return self.count * self.device.peak


def parse_group(name: str) -> Group:
    """The accelerators of a name: DEVICE, DEVICE:COUNT, or tpu_v3-8.

    Raises:
        InputError: unknown device, or a count that is none.
    """
    if name in _SLICES:
        device, count = _SLICES[name]
        return Group(name, DEVICES[device], count)
    device, _, count = name.partition(":")
    known = [*DEVICES, *_SLICES]
    if device not in DEVICES:
        raise InputError(
            f"--devices should be of {', '.join(known)}, each DEVICE or DEVICE:COUNT."
            f" Received: {name!r}.{did_you_mean(device, known)}"
        )
    if not (count or "1").isdecimal() or int(count or 1) < 1:
        raise InputError(f"--devices: the count should be at least 1. Received: {name!r}")
    return Group(name, DEVICES[device], int(count or 1))

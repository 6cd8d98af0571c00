"""Default precision and XLA settings by device, for runs that do not set them."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from common.backend import on_tpu

BFLOAT16_SINCE = (8, 0)  # compute capability of NVIDIA's GPUs whose matrix units take bfloat16


@dataclasses.dataclass(frozen=True)
class Device:
    """The device that the replicas of a strategy run on."""

    kind: str  # "CPU", "GPU" or "TPU"
    name: str = ""  # as its maker calls it
    compute_capability: tuple[int, int] | None = None  # of an NVIDIA GPU


def found(strategy: tf.distribute.Strategy) -> Device:
    """The devices of a strategy. Makes no use of them yet."""
    if on_tpu(strategy):
        return Device("TPU", f"with {strategy.num_replicas_in_sync} cores")
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return Device("CPU")
    details = tf.config.experimental.get_device_details(gpus[0])
    return Device("GPU", details.get("device_name", ""), details.get("compute_capability"))


def defaults(device: Device) -> dict[str, Any]:
    """Returns the fastest `precision` and `xla` of a device, if not the defaults; {} on a CPU."""
    if device.kind == "TPU":  # which compiles everything anyway
        return {"precision": "mixed_bfloat16"}
    if device.kind != "GPU":
        return {}
    has_bfloat16 = (device.compute_capability or (0, 0)) >= BFLOAT16_SINCE
    return ({"precision": "mixed_bfloat16"} if has_bfloat16 else {}) | {"xla": True}


def chosen(
    device: Device, fast: Mapping[str, Any], said: Collection[str], recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of `fast` that nobody has decided otherwise; says on standard error which.

    Args:
        said: what recipe, --hparams and flags say.
        recorded: what was decided for a run that resumes, which a device does not change.
    """
    values = {name: recorded.get(name, value) for name, value in fast.items() if name not in said}
    if values:
        where = f"{device.kind} {device.name}".rstrip()
        shown = ", ".join(f"{name} {json.dumps(value)}" for name, value in values.items())
        print(f"{where}: {shown}; a flag or --hparams can say otherwise", file=sys.stderr)
    return values

"""Default precision and XLA settings by device."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from convbert.common.backend import on_tpu

BFLOAT16_SINCE = (8, 0)  # compute capability of NVIDIA GPUs with bfloat16 matrix units


def fast_values(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns the fastest `precision` and `xla` for a strategy's devices, unless the defaults."""
    if on_tpu(strategy):  # compiles everything anyway
        return {"precision": "mixed_bfloat16"}
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return {}
    details = tf.config.experimental.get_device_details(gpus[0])
    has_bfloat16 = (details.get("compute_capability") or (0, 0)) >= BFLOAT16_SINCE
    return ({"precision": "mixed_bfloat16"} if has_bfloat16 else {}) | {"xla": True}


def chosen(
    fast: Mapping[str, Any], said: Collection[str], recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the values of `fast` that are not set otherwise; prints them to standard error.

    Args:
        said: values of the recipe, --hparams and flags.
        recorded: values recorded for a resumed run, which devices do not change.
    """
    values = {name: recorded.get(name, value) for name, value in fast.items() if name not in said}
    if values:
        shown = ", ".join(f"{name} {json.dumps(value)}" for name, value in values.items())
        print(f"fast here: {shown}; a flag or --hparams can say otherwise", file=sys.stderr)
    return values

"""Names of distribution strategies. Needs no TensorFlow."""

from __future__ import annotations

import re

from errors import InputError

MULTI_WORKER = "multi_worker"


def parse_strategy(name: str) -> tuple[str, int | None]:
    """The kind of a strategy, and how many devices it names.

    Raises:
        InputError: another name, or a number that is none of devices.
    """
    kind, _, count = name.partition(":")
    known = kind in ("one_device", "mirrored", MULTI_WORKER, "tpu")
    if not known or (count and (kind != "mirrored" or not re.fullmatch("0*[1-9][0-9]*", count))):
        raise InputError(
            "--strategy should be one_device, mirrored, mirrored:N, where N is at least 1,"
            f" {MULTI_WORKER} or tpu. Received: {name!r}"
        )
    return kind, int(count) if count else None


def check_strategy(name: str, tpu: str | None) -> None:
    """Raises InputError where a strategy does not exist, or a TPU is named for another."""
    kind, _ = parse_strategy(name)
    if tpu is not None and kind != "tpu":
        raise InputError(f"--tpu is for --strategy tpu. Received: --strategy {name}")


def micro_batches(batch_size: int, devices: int, micro_batch_size: int | None) -> int:
    """How many micro-batches each device's share of a batch is cut into.

    Args:
        batch_size: over all devices.
        devices: divide it.
        micro_batch_size: sequences that a device computes at a time; None: its share.

    Raises:
        InputError: it does not divide the share.
    """
    share = batch_size // devices
    if share % (micro_batch_size or share):
        raise InputError(
            f"`micro_batch_size` should divide the {share} sequences that each device has of a"
            f" batch. Received: {micro_batch_size}"
        )
    return share // (micro_batch_size or share)

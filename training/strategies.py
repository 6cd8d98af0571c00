"""Names of distribution strategies. Needs no TensorFlow."""

from __future__ import annotations

import re

from errors import InputError


def parse_strategy(name: str) -> tuple[str, int | None]:
    """The kind of a strategy, and how many devices it names.

    Raises:
        InputError: another name, or a number that is none of devices.
    """
    kind, _, count = name.partition(":")
    if kind not in ("one_device", "mirrored") or (
        count and not re.fullmatch("0*[1-9][0-9]*", count)
    ):
        raise InputError(
            "--strategy should be one_device, mirrored or mirrored:N, where N is at least 1."
            f" Received: {name!r}"
        )
    if kind == "one_device" and count:
        raise InputError(f"--strategy one_device takes no number. Received: {name!r}")
    return kind, int(count) if count else None

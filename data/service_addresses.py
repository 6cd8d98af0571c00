"""Addresses of tf.data services. Needs no TensorFlow."""

from __future__ import annotations

import re

from errors import InputError

DEFAULT_PORT = 5050
PROTOCOL = "grpc://"


def parse_addresses(text: str) -> list[str]:
    """The addresses of --data_service: grpc://HOST:PORT, or several, separated by commas.

    Raises:
        InputError: another form, or one address twice.
    """
    addresses = [address.strip() for address in text.split(",")]
    for address in addresses:
        if not re.fullmatch(rf"{PROTOCOL}[^\s:/]+:[0-9]+", address):
            raise InputError(
                "--data_service should be grpc://HOST:PORT, or several, separated by commas."
                f" Received: {address!r}"
            )
    if len(set(addresses)) < len(addresses):
        raise InputError(f"--data_service should name each address once. Received: {text!r}")
    return addresses

"""How far the answers of a smaller model are from those of the model that it was made from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from errors import InputError
from serving.client import Client
from serving.description import inputs_of, signature_for
from serving.lines import Lines
from serving.records import extension_format, peek, read_records
from signatures.signature import Signature

_BATCH = 32


def check(
    path: str,
    description: dict[str, Any],
    original: dict[str, Signature],
    exported: str,
    max_difference: float,
) -> float:
    """Asks both models about the rows of a file; returns their agreement, in percent.

    Args:
        path: rows as serving.predict reads them; labels among them are not read.
        description: of the exported model.
        original: the signatures of the model that it was made from.
        exported: the folder of the exported model.
        max_difference: from 100 percent, in points.

    Raises:
        InputError: they agree less; names how much they do. Or the file cannot be read.
    """
    lines, file_format = _lines(path), extension_format(path)
    lines, sample = peek(iter(lines), file_format, len(lines))
    signature = signature_for(description, sample, file_format)
    records = list(read_records(path, lines, inputs_of(description, signature)))
    if not records:
        raise InputError(f"{path}: has no rows to check by")
    clients = (
        Client(description, signature, original[signature].trace()),
        Client.of(exported, signature),
    )
    found = agreement(*(list(client.answers(records, _BATCH)) for client in clients))
    if found < 100.0 - max_difference:
        raise InputError(
            f"{path}: the answers should agree with the model's by {100.0 - max_difference:g} %."
            f" They agree by {found:.2f} %, so nothing is written"
        )
    return found


def _lines(path: str) -> list[bytes]:
    try:
        with Lines(path) as source:
            return list(source.read(before_waiting=lambda: None))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def agreement(expected: Sequence[dict[str, Any]], received: Sequence[dict[str, Any]]) -> float:
    """Percent. Of labels, tags and texts the share that is equal; of numbers the correlation.

    Of vectors, the answers of a pre-trained model, it is the mean cosine.
    """
    if "prediction" not in expected[0]:
        pairs = [np.array([a["pooled"], b["pooled"]]) for a, b in zip(expected, received)]
        return float(100.0 * np.mean([_cosine(*pair) for pair in pairs]))
    first, second = ([row["prediction"] for row in rows] for rows in (expected, received))
    if isinstance(first[0], float):
        centered = (np.asarray(values) - np.mean(values) for values in (first, second))
        return float(100.0 * _cosine(*centered))
    if isinstance(first[0], list):
        first, second = (list(itertools.chain(*rows)) for rows in (first, second))
    return float(100.0 * np.mean([a == b for a, b in zip(first, second)]))


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / lengths) if lengths else float(np.array_equal(a, b))

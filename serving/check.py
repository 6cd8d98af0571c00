"""How far the answers of a smaller model are from those of the model that it was made from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from errors import InputError
from serving.client import Client
from serving.description import inputs_of, mask_of, signature_for
from serving.records import Record, read_records, source
from serving.streams import Lines
from signatures.signature import Signature

_BATCH = 32
MASKED = "masked_tokens"


class Check:
    """Rows about which an exported model should answer as the model that it was made from.

    Args:
        path: rows as serving.predict reads them; labels among them are not read.
        description: of the model.
        original: its signatures.
        max_difference: of the answers' `agreement` from 100 percent, in points.
    """

    def __init__(
        self,
        path: str,
        description: dict[str, Any],
        original: dict[str, Signature],
        max_difference: float,
    ):
        rows = source(path, _lines(path))
        self._path, self._max_difference = path, max_difference
        signature = signature_for(description, rows)
        records = list(read_records(rows, inputs_of(description, signature)))
        if not records:
            raise InputError(f"{path}: has no rows to check by")
        self._asked = {signature: records}
        if MASKED in original:
            mask = mask_of(description)
            self._asked[MASKED] = [_masked(record, mask) for record in records]
        self._originals = {
            name: Client(description, name, original[name].trace()) for name in self._asked
        }

    def agreement(self, exported: str) -> dict[str, float]:
        """Asks both models; returns their agreement in percent by signature.

        Args:
            exported: the folder of the exported model.
        """
        found = {}
        for name, records in self._asked.items():
            clients = self._originals[name], Client.of(exported, name)
            found[name] = agreement(*(list(c.answers(records, _BATCH)) for c in clients))
            if not found[name] >= 100.0 - self._max_difference:  # nor where it is no number
                raise InputError(
                    f"{self._path}: the answers of {name} should agree with the model's by"
                    f" {100.0 - self._max_difference:g} %. They agree by {found[name]:.2f} %"
                )
        return found


def _masked(record: Record, mask: str) -> Record:
    """The record with a mask in the place of its middle word, unless it has one."""
    text = record.values["text"]
    words = text.split()
    if words and mask not in text:
        words[len(words) // 2] = mask
        text = " ".join(words)
    return record._replace(values={"text": text})


def _lines(path: str) -> list[bytes]:
    try:
        with Lines(path) as file:
            return list(file.read())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def agreement(expected: Sequence[dict[str, Any]], received: Sequence[dict[str, Any]]) -> float:
    """Percent: 100 where the answers are the same.

    Of labels, tags and texts it is the share that is equal; of numbers, 100 less the squared error
    as a share of their variance; of vectors, which a pre-trained model answers with, the mean
    cosine; of lists of candidates for masked tokens the mean share that is in both lists; of what
    other kinds answer with, the share of equal rows.
    """
    if "candidates" in expected[0]:
        both = zip(expected, received)
        pairs = [pair for a, b in both for pair in zip(a["candidates"], b["candidates"])]
        shares = [len({*a} & {*b}) / len(a) for a, b in pairs]
        return float(100.0 * np.mean(shares or [1.0]))
    if "pooled" in expected[0]:
        cosines = [_cosine(a["pooled"], b["pooled"]) for a, b in zip(expected, received)]
        return float(100.0 * np.mean(cosines))
    first, second = ([row.get("prediction", row) for row in rows] for rows in (expected, received))
    if isinstance(first[0], float):
        error, variance = np.mean(np.subtract(first, second) ** 2), np.var(first)
        if not variance:  # one row, or one answer to all
            return 100.0 if not error else 0.0
        return float(100.0 * (1.0 - error / variance))
    if isinstance(first[0], list):
        pairs = [pair for rows in zip(first, second) for pair in itertools.zip_longest(*rows)]
    else:
        pairs = list(zip(first, second))
    return float(100.0 * np.mean([a == b for a, b in pairs])) if pairs else 100.0


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))

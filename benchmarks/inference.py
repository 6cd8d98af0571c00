"""Milliseconds of an encoder's forward pass: ConvBERT and ELECTRA, ours and Hugging Face's.

    python -m benchmarks.inference [--sizes small,base] [--batches 1] [--lengths 128]

Random weights, full batches, no padding. Our ELECTRA is ConvBERT with self-attention and otherwise
the same: the same widths, layers and grouped feed-forward blocks. Hugging Face's has no groups.
"""

from __future__ import annotations

import dataclasses
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from absl import app, flags

from benchmarks.contest import Contestant, Result, compete, ratio
from benchmarks.table import PRECISIONS, Report, cell, milliseconds
from errors import main_with_clear_errors
from model import named_size

_SIZES = flags.DEFINE_list("sizes", ["small", "medium-small", "base"], "Sizes of ConvBERT.")
_BATCHES = flags.DEFINE_list("batches", ["1", "32"], "Sequences at once.")
_LENGTHS = flags.DEFINE_list("lengths", ["32", "128", "512"], "Tokens of a sequence.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Policy.")
_XLA = flags.DEFINE_bool("xla", False, "Whether our encoders are compiled whole.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Measurements of each, in turns.")
CONTESTANTS = ("ConvBERT", "ELECTRA", "HF ConvBERT", "HF ELECTRA")
# The columns of ratios: how many times as fast the second is as the first.
RATIOS = (("ELECTRA", "ConvBERT"), ("HF ConvBERT", "ConvBERT"), ("HF ELECTRA", "ConvBERT"))
OVER_HUGGING_FACE = {"small": 1.5, "base": 1.3}  # targets


def main(argv: list[str]) -> None:
    """Prints a row per size, batch and length."""
    report = Report(
        "size",
        "batch",
        "length",
        *(f"{name} ms" for name in CONTESTANTS),
        *(f"{slow} / {fast}" for slow, fast in RATIOS),
    )
    ratios: dict[tuple[str, str], list[tuple[str, float]]] = {pair: [] for pair in RATIOS}
    for size in _SIZES.value:
        for batch in map(int, _BATCHES.value):
            for length in map(int, _LENGTHS.value):
                results = compete(contestants(size, batch, length), _ROUNDS.value)
                for slow, fast in RATIOS:
                    ratios[slow, fast].append((size, ratio(results[slow], results[fast])))
                report.missing(results)
                report.row(size, str(batch), str(length), *cells(results))
    slowest = [value for _, value in ratios["ELECTRA", "ConvBERT"]]
    report.target("ConvBERT's speed over our ELECTRA's, lowest", np.min(slowest), at_least=1.0)
    for size, least in OVER_HUGGING_FACE.items():
        values = [value for name, value in ratios["HF ConvBERT", "ConvBERT"] if name == size]
        if values:
            what = f"ConvBERT's speed over Hugging Face's ConvBERT, {size}, lowest"
            report.target(what, np.min(values), at_least=least)
    report.end()


def contestants(size: str, batch: int, length: int) -> list[Contestant]:
    """All four at one size, batch and length."""
    convbert = named_size(size)
    electra = convbert.replace(token_mixer="attention", head_ratio=1)
    configs = (convbert, electra, convbert, electra.replace(linear_groups=1))
    made = []
    for name, config in zip(CONTESTANTS, configs):
        arguments = {
            "fields": dataclasses.asdict(config),
            "batch": batch,
            "length": length,
            "precision": _PRECISION.value,
        }
        module = "huggingface" if name.startswith("HF") else "ours"
        if module == "ours":
            arguments["xla"] = _XLA.value
        made.append(Contestant(name, f"benchmarks.{module}:inference", arguments))
    return made


def cells(results: dict[str, Result]) -> list[str]:
    """Times, then ratios."""
    times = [milliseconds(results[name]) for name in CONTESTANTS]
    return times + [cell(ratio(results[slow], results[fast])) for slow, fast in RATIOS]


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

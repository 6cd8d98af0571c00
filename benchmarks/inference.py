"""Milliseconds of an encoder's forward pass: ConvBERT and ELECTRA, ours and Hugging Face's.

    python -m benchmarks.inference [--sizes small,base] [--batches 1] [--lengths 128]

Random weights, full batches, no padding. Our ELECTRA is ConvBERT with self-attention and otherwise
the same: the same widths, layers and grouped feed-forward blocks. Hugging Face's has no groups.
"""

from __future__ import annotations

import dataclasses
import itertools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from benchmarks.interleaved import System, measure, ratio
from benchmarks.table import PRECISIONS, Report
from errors import main_with_clear_errors
from model import named_size

_SIZES = flags.DEFINE_list("sizes", ["small", "medium-small", "base"], "Sizes of ConvBERT.")
_BATCHES = flags.DEFINE_list("batches", ["1", "32"], "Sequences of a batch.")
_LENGTHS = flags.DEFINE_list("lengths", ["32", "128", "512"], "Tokens of a sequence.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Compute dtype policy.")
_XLA = flags.DEFINE_bool("xla", False, "Compilation of our whole encoders by XLA.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.")
SYSTEMS = ("ConvBERT", "ELECTRA", "HF ConvBERT", "HF ELECTRA")


def main(argv: list[str]) -> None:
    """Prints a row per size, batch and length."""
    columns = {"size": "", "batch": "d", "length": "d", **{f"{s} ms": ".1f" for s in SYSTEMS}}
    columns |= {f"{slow} / ConvBERT": ".2f" for slow in SYSTEMS[1:]}
    report = Report(columns)
    shapes = itertools.product(map(int, _BATCHES.value), map(int, _LENGTHS.value))
    for size, (batch, length) in itertools.product(_SIZES.value, shapes):
        results = measure(systems(size, batch, length), _ROUNDS.value)
        times = [1e3 * results[name].median for name in SYSTEMS]
        ratios = [ratio(results[name], results["ConvBERT"]) for name in SYSTEMS[1:]]
        report.row(size, batch, length, *times, *ratios)
        report.missing(results)
    report.end()


def systems(size: str, batch: int, length: int) -> list[System]:
    """All four at one size, batch and length."""
    convbert = named_size(size)
    electra = convbert.replace(token_mixer="attention", head_ratio=1)
    configs = (convbert, electra, convbert, electra.replace(linear_groups=1))
    compared = []
    for name, config in zip(SYSTEMS, configs):
        arguments = {"fields": dataclasses.asdict(config), "batch": batch, "length": length}
        arguments["precision"] = _PRECISION.value
        module = "huggingface" if name.startswith("HF") else "ours"
        if module == "ours":
            arguments["xla"] = _XLA.value
        compared.append(System(name, f"benchmarks.{module}:inference", arguments))
    return compared


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

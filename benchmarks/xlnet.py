"""Milliseconds of XLNet, ours and Hugging Face's: forward passes and fine-tuning steps.

    python -m benchmarks.xlnet [--sizes base] [--phases inference,training] [--shapes 1x128,8x128]

Random weights, full batches, no padding, the threads that either library takes by itself. A
training step is one of sequence classification, with dropout, clipping and the update. Hugging
Face's "gelu" is the exact one, XLNet's and ours the approximation by tanh; Hugging Face has no
other for XLNet's checkpoints.
"""

from __future__ import annotations

import dataclasses
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from benchmarks.interleaved import System, measure, ratio
from benchmarks.table import PRECISIONS, Report
from errors import InputError, main_with_clear_errors
from model import named_size

_SIZES = flags.DEFINE_list("sizes", ["base"], "Sizes of XLNet.")
_PHASES = flags.DEFINE_list("phases", ["inference", "training"], "What is timed.")
_SHAPES = flags.DEFINE_list("shapes", ["1x128", "8x128"], "Sequences and tokens of each.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Compute dtype policy.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.")
FUNCTIONS = {"inference": "inference", "training": "classification_step"}


def main(argv: list[str]) -> None:
    """Prints a row per size, phase and shape."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    columns = {"size": "", "phase": "", "batch": "d", "length": "d"}
    columns |= {"XLNet ms": ".1f", "HF XLNet ms": ".1f", "HF / ours": ".2f"}
    report = Report(columns)
    for size in _SIZES.value:
        for phase in _PHASES.value:
            if phase not in FUNCTIONS:
                expected = " or ".join(FUNCTIONS)
                raise InputError(f"--phases should be {expected}. Received: {phase!r}")
            for batch, length in map(shape, _SHAPES.value):
                results = measure(systems(size, phase, batch, length), _ROUNDS.value)
                ours, theirs = (results[name] for name in ("ours", "HF"))
                times = [1e3 * ours.median, 1e3 * theirs.median, ratio(theirs, ours)]
                report.row(size, phase, batch, length, *times)
                report.missing(results)
    report.end()


def shape(text: str) -> tuple[int, int]:
    """BATCHxLENGTH as two numbers; InputError for others."""
    numbers = text.split("x")
    if len(numbers) != 2 or not all(number.isdecimal() and int(number) for number in numbers):
        raise InputError(f"--shapes should be such as 8x128. Received: {text!r}")
    return int(numbers[0]), int(numbers[1])


def systems(size: str, phase: str, batch: int, length: int) -> list[System]:
    """Both, of one size and shape."""
    config = named_size(f"xlnet-{size}")
    arguments = {"fields": dataclasses.asdict(config), "batch": batch, "length": length}
    arguments["precision"] = _PRECISION.value
    return [
        System(name, f"benchmarks.{module}:{FUNCTIONS[phase]}", arguments)
        for name, module in (("ours", "ours_xlnet"), ("HF", "huggingface_xlnet"))
    ]


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

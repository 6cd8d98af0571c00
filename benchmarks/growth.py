"""How time and memory of training grow with the length of sequences, and with their number.

    python -m benchmarks.growth

Forward and backward pass of ConvBERT's and ELECTRA's encoders, with dropout. The exponents are
slopes of least-squares lines through the logarithms. Memory is what the passes take on top of the
process with the network built, so that what TensorFlow itself takes does not flatten the slope.
"""

from __future__ import annotations

import dataclasses
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from collections.abc import Sequence

import numpy as np
from absl import app, flags

from benchmarks.contest import Contestant, Result, compete
from benchmarks.table import PRECISIONS, Report, cell, milliseconds
from errors import main_with_clear_errors
from model import EncoderConfig, named_size

_SIZE = flags.DEFINE_string("size", "small", "Size of ConvBERT.")
_LENGTHS = flags.DEFINE_list("lengths", ["64", "128", "256", "512"], "At the largest batch.")
_BATCHES = flags.DEFINE_list("batches", ["1", "2", "4", "8"], "At the largest length.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Policy.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Measurements of each, in turns.")
# Attention scores, which nothing should outgrow, go with the square of the length and with the
# batch; the tenth is for noise and for caches that overflow.
LIMITS = {"length": 2.0, "batch": 1.1}


def main(argv: list[str]) -> None:
    """Prints a row per model and shape, and the exponents as targets."""
    convbert = named_size(_SIZE.value)
    configs = {
        "ConvBERT": convbert,
        "ELECTRA": convbert.replace(token_mixer="attention", head_ratio=1),
    }
    lengths, batches = list(map(int, _LENGTHS.value)), list(map(int, _BATCHES.value))
    shapes = {
        "length": [(max(batches), length) for length in lengths],
        "batch": [(batch, max(lengths)) for batch in batches],
    }
    report = Report("model", "batch", "length", "ms", "GiB of the passes")
    exponents = []
    for name, config in configs.items():
        for axis, sizes in (("length", lengths), ("batch", batches)):
            results = measure(config, shapes[axis])
            times = [result.median for result in results]
            memory = [memory_of_passes(result) for result in results]
            for (batch, length), result, gib in zip(shapes[axis], results, memory):
                report.row(name, str(batch), str(length), milliseconds(result), cell(gib, ".3f"))
            for what, values in (("time", times), ("memory", memory)):
                power = exponent(sizes, values)
                exponents.append((power, LIMITS[axis]))
                title = f"exponent of {name}'s {what} in the {axis}"
                report.target(title, power, at_most=LIMITS[axis])
    slow = sum(power <= limit for power, limit in exponents)
    report.end(f"{slow} of {len(exponents)} grow no faster than attention scores do.")


def measure(config: EncoderConfig, shapes: Sequence[tuple[int, int]]) -> list[Result]:
    """One encoder at every (batch, length), in turns."""
    fields = dataclasses.asdict(config)
    contestants = [
        Contestant(
            f"{batch} x {length}",
            "benchmarks.ours:encoder_gradients",
            {"fields": fields, "batch": batch, "length": length, "precision": _PRECISION.value},
        )
        for batch, length in shapes
    ]
    results = compete(contestants, _ROUNDS.value)
    return [results[contestant.name] for contestant in contestants]


def memory_of_passes(result: Result) -> float:
    """GiB on top of the process that is ready to start."""
    return result.peak_memory - result.facts["memory_before"]


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """p of the power law size^p that fits the values best; NaN where one is not positive."""
    if min(values) <= 0:
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

"""The block that ConvBERT replaces, against the one it replaces it with: FLOPs and milliseconds.

    python -m benchmarks.mixed_attention_block [--training]

Table 5 of the ConvBERT supplement: one layer without its feed-forward block, that is the token
mixer, its output projection, the residual and the normalisation. FLOPs are counted as there, time
is measured; without --training, it is that of inference.
"""

from __future__ import annotations

import dataclasses
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from analysis.operations import EXECUTED
from benchmarks.contest import Contestant, compete, ratio
from benchmarks.table import PRECISIONS, Report, cell, milliseconds
from errors import main_with_clear_errors
from model import EncoderConfig, named_size
from model.operations import DROPOUT, LAYER_NORM, token_mixer

_SIZE = flags.DEFINE_string("size", "base", "Size of ConvBERT.")
_LENGTHS = flags.DEFINE_list("lengths", ["128", "256", "512"], "Tokens of a sequence.")
_BATCHES = flags.DEFINE_list("batches", ["8", "8", "4"], "Batch at each length.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Policy.")
_TRAINING = flags.DEFINE_bool("training", False, "Forward and backward pass, with dropout.")
_XLA = flags.DEFINE_bool("xla", False, "Whether each block is compiled whole.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Measurements of each, in turns.")
TARGETS = {128: 0.88, 512: 0.80}  # of the time, by length


def main(argv: list[str]) -> None:
    """Prints a row per length."""
    mixed = named_size(_SIZE.value)
    blocks = {"mixed": mixed, "self": mixed.replace(token_mixer="attention", head_ratio=1)}
    report = Report(
        "length",
        "batch",
        *(f"{name} {unit}" for unit in ("GFLOPs", "ms") for name in blocks),
        "FLOPs m / s",
        "time m / s",
    )
    for length, batch in zip(map(int, _LENGTHS.value), map(int, _BATCHES.value), strict=True):
        flops = [block_flops(config, length, _TRAINING.value) for config in blocks.values()]
        results = compete(
            [contestant(name, config, batch, length) for name, config in blocks.items()],
            _ROUNDS.value,
        )
        times = ratio(results["mixed"], results["self"])
        report.row(
            str(length),
            str(batch),
            *(f"{count / 1e9:.2f}" for count in flops),
            *(milliseconds(results[name], batch) for name in blocks),
            cell(flops[0] / flops[1]),
            cell(times),
        )
        if length in TARGETS:
            what = f"time of mixed attention over that of self-attention, length {length}"
            report.target(what, times, at_most=TARGETS[length])
    report.end("GFLOPs and ms are of one sequence.")


def contestant(name: str, config: EncoderConfig, batch: int, length: int) -> Contestant:
    """The block of an encoder's layer."""
    arguments = {
        "fields": dataclasses.asdict(config),
        "batch": batch,
        "length": length,
        "precision": _PRECISION.value,
        "training": _TRAINING.value,
        "xla": _XLA.value,
    }
    return Contestant(name, "benchmarks.ours:mixer_block", arguments)


def block_flops(config: EncoderConfig, length: int, training: bool) -> float:
    """Operations of the block on one sequence, after the conventions of model.operations."""
    after = (DROPOUT + 1 + LAYER_NORM) * config.hidden_size  # dropout, residual, normalisation
    passes = 1 + EXECUTED.backward if training else 1
    return (token_mixer(config, length).total + after) * length * passes


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

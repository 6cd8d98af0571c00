"""Time, use of the machine and memory of a whole pre-training step, against the peers.

    python -m benchmarks.pretraining_step                                    # small, 32 x 128
    python -m benchmarks.pretraining_step --size base --batch 8
    python -m benchmarks.pretraining_step --size base --batch 4 --length 512 --precisions float32

Ours is what run_pretraining.py does between two batches; Hugging Face's is put together from its
encoders and heads to do the same. The ceiling is a large matrix product, measured in turns with the
rest. GFLOP/s count the model's matrix products (`ours.step_flops`), those of a row's system.
"""

from __future__ import annotations

import dataclasses
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from benchmarks import ours
from benchmarks.contest import Contestant, Result, compete, ratio
from benchmarks.table import PRECISIONS, Report, cell, gflops, milliseconds
from errors import main_with_clear_errors
from pretrain.hparams import encoder_config

# What of the original's step is known: its seconds on a machine of this float32 ceiling, GFLOP/s.
ORIGINAL_SECONDS, ORIGINAL_CEILING, ORIGINAL_SHAPE = 2.73, 200.0, ("small", 32, 128)
LONG = 512  # the length at which peak memory is compared
ATTENTION = {"conv_type": "noconv", "head_ratio": 1}
MASKED_LM = {**ATTENTION, "objective": "masked_lm"}
SYSTEMS = {
    "ConvBERT": {},
    "ELECTRA": ATTENTION,
    "BERT": MASKED_LM,
    "HF ConvBERT": {},
    "HF ELECTRA": ATTENTION,
    "HF BERT": MASKED_LM,
}
CEILING, REFERENCE = "matrix product", "ConvBERT, float32"

_SIZE = flags.DEFINE_string("size", "small", "Size of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence.")
_PRECISIONS = flags.DEFINE_multi_enum("precisions", PRECISIONS, PRECISIONS, "Once or twice.")
_SYSTEMS = flags.DEFINE_multi_enum("systems", list(SYSTEMS), list(SYSTEMS), "One each time.")
_SIDE = flags.DEFINE_integer("side", 2048, "Of the matrix product that is the ceiling.")
_XLA = flags.DEFINE_bool("xla", False, "Whether our steps are compiled whole.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Measurements of each, in turns.")


def main(argv: list[str]) -> None:
    """Prints a row per precision and system."""
    columns = ("ms / step", "examples/s", "GFLOP/s", "of ceiling", "GiB", "time / ConvBERT's")
    report = Report("system", *columns)
    for precision in _PRECISIONS.value:
        results = compete(contestants(precision), _ROUNDS.value)
        ceiling = gflops(results[CEILING])
        report.row(f"{CEILING}, {precision}", "", "", cell(ceiling, ".0f"), "100%", "", "")
        for name in _SYSTEMS.value:
            report.row(f"{name}, {precision}", *cells(results, name, ceiling))
        if precision == "float32" and shape() == ORIGINAL_SHAPE:
            seconds = ORIGINAL_SECONDS * ORIGINAL_CEILING / ceiling
            faster = seconds / results.get("ConvBERT", Result()).median
            rate = cell(_BATCH.value / seconds, ".1f")
            row = (cell(1e3 * seconds, ".1f"), rate, "", "", "", cell(faster))
            report.row("original (scaled), float32", *row)
            report.target("ConvBERT's speed over the original's (scaled)", faster, at_least=1.4)
        report.missing(results)
        add_targets(report, precision, results, ceiling)
    report.end()


def shape() -> tuple[str, int, int]:
    """Size, batch and length of the step."""
    return _SIZE.value, _BATCH.value, _LENGTH.value


def contestants(precision: str) -> list[Contestant]:
    """The ceiling and the systems in one precision, and what bfloat16 is compared with."""
    side = {
        "m": _SIDE.value,
        "k": _SIDE.value,
        "n": _SIDE.value,
        "dtype": precision.removeprefix("mixed_"),
    }
    made = [Contestant(CEILING, "benchmarks.ours:matmul", side)]
    made += [contestant(name, name, precision) for name in _SYSTEMS.value]
    if precision != "float32":
        made.append(contestant(REFERENCE, "ConvBERT", "float32"))
    return made


def contestant(name: str, system: str, precision: str) -> Contestant:
    """A system's step."""
    size, batch, length = shape()
    shared = {"batch": batch, "length": length, "precision": precision}
    if not system.startswith("HF"):
        arguments = {"size": size, "xla": _XLA.value, **SYSTEMS[system], **shared}
        return Contestant(name, "benchmarks.ours:pretraining_step", arguments)
    hparams = ours.step_hparams(*shape(), **SYSTEMS[system])
    config = encoder_config(hparams, hparams.vocab_size)
    if hparams.objective.detector() is None:
        arguments = {"fields": dataclasses.asdict(config), **shared}
        return Contestant(name, "benchmarks.huggingface:masked_lm_step", arguments)
    generator = hparams.objective.generator_config(config)
    fields, generator = map(dataclasses.asdict, (config, generator))
    arguments = {"fields": fields, "generator_fields": generator, **shared}
    return Contestant(name, "benchmarks.huggingface:pretraining_step", arguments)


def cells(results: dict[str, Result], name: str, ceiling: float) -> list[str]:
    """A row's cells after system and precision."""
    result, speed = results[name], model_gflops(results, name)
    return [
        milliseconds(result),
        cell(_BATCH.value / result.median, ".1f"),
        cell(speed, ".0f"),
        cell(speed / ceiling, ".0%"),
        cell(result.peak_memory),
        cell(times(results, name, "ConvBERT")),
    ]


def model_gflops(results: dict[str, Result], name: str) -> float:
    """GFLOP/s of a system's step; NaN where it did not run or was not asked for."""
    flops = ours.step_flops(ours.step_hparams(*shape(), **SYSTEMS[name]))
    return flops / results.get(name, Result()).median / 1e9


def times(results: dict[str, Result], first: str, second: str) -> float:
    """How many times as long the first takes; NaN where one did not run or was not asked for."""
    return ratio(results.get(first, Result()), results.get(second, Result()))


def add_targets(report: Report, precision: str, results: dict[str, Result], ceiling: float) -> None:
    """The targets for this size and precision."""
    (size, _, length), half = shape(), precision != "float32"
    where = f"{size}, {precision}"
    if size == "small":
        faster = times(results, "HF ConvBERT", "ConvBERT")
        least = 2.0 if half else 1.5
        report.target(f"ConvBERT's speed over Hugging Face's, {where}", faster, at_least=least)
    if size == "base" and not half:
        share = model_gflops(results, "ConvBERT") / ceiling
        report.target(f"ConvBERT's share of the ceiling, {where}", share, at_least=0.75)
    if size == "base" and length == LONG:
        convbert, electra = (results.get(name, Result()) for name in ("ConvBERT", "ELECTRA"))
        memory = convbert.peak_memory / electra.peak_memory
        report.target(f"ConvBERT's peak memory over ELECTRA's, {where}", memory, at_most=1.0)
    if half:
        faster = times(results, REFERENCE, "ConvBERT")
        report.target(f"ConvBERT's speed over float32, {where}", faster, at_least=1.6)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

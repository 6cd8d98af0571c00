"""The mixed-attention block and the self-attention that it replaces: FLOPs and milliseconds.

    python -m convbert.benchmarks.mixed_attention_block [--training]

Table 5 of the ConvBERT supplement: one layer without its feed-forward block, that is the token
mixer, its output projection, the residual and the normalisation. FLOPs are counted as there, time
is measured; without --training, it is that of inference. Published: 26.5 and 19.3 GFLOPs, 17.66
and 12.94 ms, 0.73 of the time, at a length that is not stated.
"""

from __future__ import annotations

import dataclasses

from absl import app, flags

from convbert.analysis.operations import EXECUTED
from convbert.benchmarks.interleaved import System, measure, ratio
from convbert.benchmarks.table import PRECISIONS, Report
from convbert.common.errors import InputError, main_with_clear_errors
from convbert.model import EncoderConfig, named_size
from convbert.model.flops import DROPOUT, LAYER_NORM, token_mixer

_TARGET = "convbert.benchmarks.ours:mixer_block"
_SIZE = flags.DEFINE_string("size", "base", "Size of ConvBERT.")
_LENGTHS = flags.DEFINE_list("lengths", ["128", "256", "512"], "Tokens of a sequence.")
_BATCHES = flags.DEFINE_list("batches", ["8", "8", "4"], "Sequences of a batch, for each length.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Compute dtype policy.")
_TRAINING = flags.DEFINE_bool("training", False, "Forward and backward pass, with dropout.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Interleaved runs of each block.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Prints a row per length."""
    mixed = named_size(_SIZE.value)
    blocks = {"mixed": mixed, "self": mixed.replace(token_mixer="attention", head_ratio=1)}
    columns = {"length": "d", "batch": "d", "mixed GFLOPs": ".2f", "self GFLOPs": ".2f"}
    columns |= {"mixed ms": ".1f", "self ms": ".1f", "FLOPs m / s": ".2f", "time m / s": ".2f"}
    shapes = [*zip(map(int, _LENGTHS.value), map(int, _BATCHES.value))]
    if len(_LENGTHS.value) != len(_BATCHES.value):
        raise InputError(f"--batches: should be {len(_LENGTHS.value)} numbers, one for each length")
    report = Report(columns)
    settings = {"precision": _PRECISION.value, "training": _TRAINING.value}
    for length, batch in shapes:
        compared = []
        for name, config in blocks.items():
            arguments = {"fields": dataclasses.asdict(config), "batch": batch, "length": length}
            compared.append(System(name, _TARGET, {**arguments, **settings}))
        results = measure(compared, _ROUNDS.value)
        flops = [block_flops(config, length, _TRAINING.value) for config in blocks.values()]
        times = [1e3 * results[name].median / batch for name in blocks]
        ratios = flops[0] / flops[1], ratio(results["mixed"], results["self"])
        report.row(length, batch, *(count / 1e9 for count in flops), *times, *ratios)
    report.end("GFLOPs and ms are of one sequence.")


def block_flops(config: EncoderConfig, length: int, training: bool) -> float:
    """Operations of the block on one sequence, after the conventions of model.flops."""
    after = (DROPOUT + 1 + LAYER_NORM) * config.hidden_size  # dropout, residual, normalisation
    passes = 1 + EXECUTED.backward if training else 1
    return (token_mixer(config, length).total + after) * length * passes


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

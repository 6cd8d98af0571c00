"""Time and memory of SCRIPT's critic loss with its gradients, against its matrix products alone.

    python -m benchmarks.vocabulary_sum                # small: width 128, 32 x 128 positions
    python -m benchmarks.vocabulary_sum --width 768 --batch 8

The products are the floor: scores, and gradients of states and table, in the same blocks, without
exponentials, sums or anything else. "all at once" has the scores of all positions in memory.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from benchmarks.interleaved import System, measure, ratio
from benchmarks.table import PRECISIONS, Report
from errors import main_with_clear_errors

PRODUCTS = "products alone"

_WIDTH = flags.DEFINE_integer("width", 128, "Width of the embeddings.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence.")
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 30522, "Tokens of the vocabulary.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Compute dtype policy.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.")


def main(argv: list[str]) -> None:
    """Prints a row per system."""
    shape = {
        "positions": _BATCH.value * _LENGTH.value,
        "width": _WIDTH.value,
        "vocab_size": _VOCAB_SIZE.value,
        "dtype": _PRECISION.value.removeprefix("mixed_"),
    }
    compared = [System(PRODUCTS, "benchmarks.ours_vocabulary:products", shape)]
    for name, form in (("critic's loss", ""), ("all at once", "_reference")):
        compared.append(System(name, "benchmarks.ours_vocabulary:loss", {"form": form, **shape}))
    results = measure(compared, _ROUNDS.value)
    columns = {"system": "", "ms": ".0f", "GFLOP/s": ".0f", "GiB": ".2f", "time / products": ".2f"}
    report = Report(columns)
    for name, result in results.items():
        slower = ratio(result, results[PRODUCTS])
        report.row(name, 1e3 * result.median, result.gflops, result.peak_memory, slower)
    report.end()


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

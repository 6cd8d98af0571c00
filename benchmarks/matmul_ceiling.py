"""GFLOP/s of matrix products: what no network of them can exceed on this machine.

    python -m benchmarks.matmul_ceiling

One large square product, and the products of the layers of ConvBERT-small and ConvBERT-base with
the batches that the other benchmarks have; by TensorFlow, and by PyTorch, the peers' ceiling.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from benchmarks.contest import Contestant, compete, ratio
from benchmarks.table import Report, cell, gflops
from errors import main_with_clear_errors
from model import EncoderConfig, named_size

_SIDE = flags.DEFINE_integer("side", 2048, "Of the square product.")
_SIZES = flags.DEFINE_list("sizes", ["small", "base"], "Sizes whose layers are measured.")
_BATCHES = flags.DEFINE_list("batches", ["32", "8"], "Batch of each size.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Measurements of each, in turns.")
DTYPES = ("float32", "bfloat16")
MODULES = {"": "ours", "torch ": "huggingface"}
NAMES = [f"{library}{dtype}" for library in MODULES for dtype in DTYPES]


def main(argv: list[str]) -> None:
    """Prints a row per product."""
    side = _SIDE.value
    report = Report(
        "product",
        "m",
        "k",
        "n",
        *(f"{name} GFLOP/s" for name in NAMES[:2]),
        "ratio",
        *(f"{name} GFLOP/s" for name in NAMES[2:]),
    )
    products = {"square": (side, side, side)}
    for size, batch in zip(_SIZES.value, _BATCHES.value, strict=True):
        rows = int(batch) * _LENGTH.value
        for name, (k, n) in layer_products(named_size(size)).items():
            products[f"{size}, {name}"] = (rows, k, n)
    for name, (m, k, n) in products.items():
        contestants = [
            Contestant(
                f"{library}{dtype}",
                f"benchmarks.{module}:matmul",
                {"m": m, "k": k, "n": n, "dtype": dtype},
            )
            for library, module in MODULES.items()
            for dtype in DTYPES
        ]
        results = compete(contestants, _ROUNDS.value)
        report.missing(results)
        speeds = [cell(gflops(results[contestant]), ".0f") for contestant in NAMES]
        gain = cell(ratio(*(results[dtype] for dtype in DTYPES)))
        report.row(name, str(m), str(k), str(n), *speeds[:2], gain, *speeds[2:])
    report.end()


def layer_products(config: EncoderConfig) -> dict[str, tuple[int, int]]:
    """Inner and outer width of a layer's products with weights, as `model` computes them.

    With grouped linear, the feed-forward block's are those of one group.
    """
    D, A, G = config.hidden_size, config.mixer_size, config.linear_groups
    inner = config.intermediate_size
    return {
        "query, key and values": (D, 4 * A),
        "span-aware key": (D, A),
        "mixer output": (2 * A, D),
        "feed-forward in": (D // G, inner // G),
        "feed-forward out": (inner // G, D // G),
    }


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

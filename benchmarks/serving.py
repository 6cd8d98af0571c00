"""Milliseconds of exported encoders: SavedModel and LiteRT beside Hugging Face and ONNX Runtime.

    python -m convbert.benchmarks.serving --sizes small,base
    python -m convbert.benchmarks.serving --sizes ettin-17m --systems SavedModel --systems LiteRT \
        --systems HF --systems "HF compiled" --systems ORT

From token ids to hidden states. Weights are random, and the same in all systems of an architecture;
the command ends where the vectors of the first token differ by more than 1e-3 (8-bit ones are not
compared). Each system is a process of its own, with a thread for each core.
"""

from __future__ import annotations

import itertools
import pathlib
import tempfile

from absl import app, flags

from convbert.benchmarks import served
from convbert.benchmarks.interleaved import System, check_same, measure, ratio, run_command
from convbert.benchmarks.table import Report
from convbert.common.errors import main_with_clear_errors

_SIZES = flags.DEFINE_list("sizes", ["small"], "Sizes, ConvBERT's or others'; see random_model.")
_BATCHES = flags.DEFINE_list("batches", ["1", "8", "32"], "Batch sizes.")
_LENGTHS = flags.DEFINE_list("lengths", ["16", "32", "128", "512"], "Tokens of a sequence.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.", lower_bound=1)

# What measures each system, which model of `prepare` it reads, and further arguments.
_SAVED, _LITERT = "convbert.benchmarks.served:saved_model", "convbert.benchmarks.served:litert"
_HF = "convbert.benchmarks.huggingface:hidden_states"
_ORT = "convbert.benchmarks.onnx_runtime:hidden_states"
SYSTEMS = {
    "SavedModel": (_SAVED, "convbert/saved", {}),
    "LiteRT": (_LITERT, "convbert/float32", {}),
    "LiteRT int8": (_LITERT, "convbert/int8", {}),
    "LiteRT ELECTRA": (_LITERT, "electra/float32", {}),
    "HF": (_HF, "convbert/huggingface", {}),
    "HF compiled": (_HF, "convbert/huggingface", {"compiled": True}),
    "ORT": (_ORT, "convbert/huggingface", {}),
    "ORT ELECTRA": (_ORT, "electra/huggingface", {}),
    "ORT ELECTRA int8": (_ORT, "electra/huggingface", {"int8": True}),
}
# The same weights in floating point, and tolerances between vectors of the first tokens.
_SAME = (
    dict.fromkeys(("SavedModel", "LiteRT", "HF", "HF compiled", "ORT"), 1e-3),
    dict.fromkeys(("LiteRT ELECTRA", "ORT ELECTRA"), 1e-3),
)
_SYSTEMS = flags.DEFINE_multi_enum(
    "systems", list(SYSTEMS), list(SYSTEMS), "Systems, one each time. Ratios are to the first."
)


def main(argv: list[str]) -> None:
    """Prints a row per size, batch, length and system."""
    names, notes = _SYSTEMS.value, []
    columns = {"system": "", "size": "", "batch": "d", "tokens": "d", "ms": ".1f"}
    columns |= {"texts/s": ".1f", f"time / {names[0]}'s": ".2f", "peak GiB": ".2f"}
    report = Report(columns)
    shapes = list(itertools.product(map(int, _BATCHES.value), map(int, _LENGTHS.value)))
    for size in _SIZES.value:
        with tempfile.TemporaryDirectory() as folder:
            notes += prepare(size, folder, sorted({SYSTEMS[name][1] for name in names}))
            for batch, length in shapes:
                results = measure([system(n, folder, batch, length) for n in names], _ROUNDS.value)
                for tolerances in _SAME:
                    check_same(results, "vector", tolerances)
                for name, result in results.items():
                    speed = 1e3 * result.median, batch / result.median
                    slower = ratio(result, results[names[0]])
                    report.row(name, size, batch, length, *speed, slower, result.peak_memory)
                report.missing(results)
    report.end(*notes)


def system(name: str, folder: str, batch: int, length: int) -> System:
    """A named system, for one batch and length."""
    target, model, others = SYSTEMS[name]
    shape = {"batch": batch, "length": length}
    return System(name, target, {"folder": f"{folder}/{model}", **shape, **others})


def prepare(size: str, folder: str, needed: list[str]) -> list[str]:
    """Makes the models that are needed; returns lines that say how large they are."""
    longest = str(max(512, *map(int, _LENGTHS.value)))
    for architecture, name in {"convbert": size, "electra": f"electra-{size}"}.items():
        models = [each.split("/")[1] for each in needed if each.startswith(architecture)]
        if models:
            place = f"{folder}/{architecture}"
            served.prepare(name, place, models, "", "--max_seq_length", longest)
            if "huggingface" in models:
                run_command("convbert.benchmarks.onnx_runtime", f"{place}/huggingface")
    notes = []
    for model in needed:
        files = [path for path in pathlib.Path(folder, model).rglob("*") if path.is_file()]
        size_mb = sum(path.stat().st_size for path in files) / 1e6
        notes.append(f"- {size}, {model}: {size_mb:.1f} MB on disk")
    return notes


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

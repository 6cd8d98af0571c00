"""Milliseconds of exported encoders: SavedModel and LiteRT beside Hugging Face and ONNX Runtime.

    python -m benchmarks.serving --sizes small,base
    python -m benchmarks.serving --input text --batches 32
    python -m benchmarks.serving --clients 4 --batches 1

From token ids, or from texts, to hidden states. Weights are random, and the same in all systems of
an architecture; where the vectors of the first token differ by more than 1e-3 (of float16 1e-2), it
ends; 8-bit ones are not compared. Each system is a process of its own, with a thread for each core.

With --clients, that many threads send requests at once, four each before all start again. The table
then has a row for each system: texts per second, milliseconds of a request (median and 99th
percentile), and the peak memory of its process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from absl import app, flags

from benchmarks.interleaved import Result, System, measure
from benchmarks.latency_table import Comparison, print_rows, run, size_note
from benchmarks.table import Report
from errors import InputError, main_with_clear_errors
from settings import did_you_mean

_SIZES = flags.DEFINE_list("sizes", ["small"], "Named sizes of ConvBERT.")
_BATCHES = flags.DEFINE_list("batches", ["1", "8", "32"], "Batch sizes.")
_LENGTHS = flags.DEFINE_list(
    "lengths", ["16", "32", "128", "512"], "Sequence lengths, special tokens included."
)
_INPUT = flags.DEFINE_enum("input", "ids", ["ids", "text"], "Input of a request.")
_CLIENTS = flags.DEFINE_integer("clients", 0, "Number of concurrent clients.", lower_bound=0)
_SYSTEMS = flags.DEFINE_list("systems", ["all"], "Systems, or `all`.")
_MODELS = flags.DEFINE_string(
    "models", None, "Folder in which the models are left, and found again."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.")
TOLERANCE, HALF_TOLERANCE = 1e-3, 1e-2  # between vectors of the first tokens

# Names, what measures them in benchmarks/served.py or elsewhere, and what of `prepare` they read.
SAVED, LITERT, LITERT_ELECTRA = "SavedModel", "LiteRT", "LiteRT ELECTRA"
HALF, INT8 = "LiteRT float16", "LiteRT int8"
HF, HF_COMPILED = "HF", "HF compiled"
ORT, ORT_ELECTRA = "ORT ConvBERT", "ORT ELECTRA"
ORT_INT8 = "ORT ELECTRA int8"
SYSTEMS = {
    SAVED: ("benchmarks.served:saved_model", {"folder": "convbert/saved"}),
    LITERT: ("benchmarks.served:litert", {"path": "convbert/float32/model.tflite"}),
    HALF: ("benchmarks.served:litert", {"path": "convbert/float16/model.tflite"}),
    INT8: ("benchmarks.served:litert", {"path": "convbert/int8/model.tflite"}),
    LITERT_ELECTRA: ("benchmarks.served:litert", {"path": "electra/float32/model.tflite"}),
    HF: ("benchmarks.huggingface:hidden_states", {"folder": "convbert/huggingface"}),
    HF_COMPILED: (
        "benchmarks.huggingface:hidden_states",
        {"folder": "convbert/huggingface", "compiled": True},
    ),
    ORT: ("benchmarks.served:onnx_runtime", {"folder": "convbert/huggingface"}),
    ORT_ELECTRA: ("benchmarks.served:onnx_runtime", {"folder": "electra/huggingface"}),
    ORT_INT8: ("benchmarks.served:onnx_runtime", {"folder": "electra/huggingface", "int8": True}),
}
# The same weights, in floating point.
_SAME = ((SAVED, LITERT, HF, HF_COMPILED, ORT, HALF), (LITERT_ELECTRA, ORT_ELECTRA))
# Targets: the first should take at least as long as the second.
RATIOS = (
    *((slow, LITERT) for slow in (LITERT_ELECTRA, HF, ORT_ELECTRA)),
    (ORT_INT8, INT8),
    (ORT, SAVED),
)


def main(argv: list[str]) -> None:
    """Prints a row per size, batch and length."""
    names = chosen()

    def measured(compared):
        return measure(compared, _ROUNDS.value)

    shapes = _SIZES.value, _BATCHES.value, _LENGTHS.value
    comparison = Comparison(shapes, prepare, systems, measured, check_agreement, _MODELS.value)
    if _CLIENTS.value:
        _print_loads(names, comparison)
    else:
        pairs = [pair for pair in RATIOS if {*pair} <= {*names}]
        print_rows(names, pairs, comparison)


def chosen() -> list[str]:
    """The names of --systems; InputError for an unknown one."""
    if _SYSTEMS.value == ["all"]:
        return list(SYSTEMS)
    names = list(dict.fromkeys(_SYSTEMS.value))
    for name in names or [""]:
        if name not in SYSTEMS:
            raise InputError(
                f"--systems should be among {', '.join(SYSTEMS)}."
                f"{did_you_mean(name, SYSTEMS)} Received: {name!r}"
            )
    return names


def systems(folder: str, batch: int, length: int) -> list[System]:
    """Those chosen, for one batch and length."""
    found = []
    for name in chosen():
        target, reads = SYSTEMS[name]
        arguments = {
            key: f"{folder}/{value}" if isinstance(value, str) else value
            for key, value in reads.items()
        }
        arguments |= {"batch": batch, "length": length, "text": _INPUT.value == "text"}
        if _CLIENTS.value:
            arguments = {"target": target, "arguments": arguments, "clients": _CLIENTS.value}
            target = "benchmarks.served:under_load"
        found.append(System(name, target, arguments))
    return found


def _print_loads(names: Sequence[str], comparison: Comparison) -> None:
    """Prints a row per size, batch, length and system."""
    columns = {"system": "", "size": "", "batch": "d", "tokens": "d", "texts/s": ".1f"}
    columns |= {"median ms": ".1f", "99th percentile ms": ".1f", "peak GiB": ".2f"}
    report = Report(columns)
    for shape, results in comparison.results(report):
        for name in names:
            report.row(name, *shape, *_loaded(results[name], batch=shape[1]))


def _loaded(result: Result, batch: int) -> tuple[float, ...]:
    """Texts a second, median and 99th percentile of a request in ms, and peak memory."""
    if result.missing:
        return (math.nan,) * 4
    texts = batch * result.facts["requests"] / result.median
    quantiles = np.percentile(result.facts["latencies"], [50, 99])
    return texts, *(1e3 * quantiles), result.peak_memory


def prepare(size: str, folder: str) -> list[str]:
    """Makes the models in all formats; says how large they are."""
    notes = []
    for system, name in {"convbert": size, "electra": f"electra-{size}"}.items():
        model, peer = f"{folder}/{system}/model", f"{folder}/{system}/huggingface"
        run("benchmarks.random_model", name, model)
        export = ["export_savedmodel", "--model_dir", model, "--max_seq_length", "512"]
        run(*export, "--output_dir", f"{folder}/{system}/saved")
        for weights in ("float32", "float16", "int8"):
            output = f"{folder}/{system}/{weights}"
            run(*export, "--output_dir", output, "--format", "litert", "--weights", weights)
        run("checkpoints.convert", "--target", "huggingface", "--input", model, "--output", peer)
        run("benchmarks.onnx_export", peer)
        folders = ("saved", "float32", "float16", "int8", "huggingface")
        notes += [size_note(f"{name}, {form}", f"{folder}/{system}/{form}") for form in folders]
    return notes


def check_agreement(results: dict[str, Result]) -> None:
    """Raises InputError where models of the same weights give different vectors."""
    for names in _SAME:
        found = {name: results[name].facts.get("vector") for name in names if name in results}
        found = {name: vector for name, vector in found.items() if vector}
        for name, vector in found.items():
            expected = next(iter(found.values()))
            difference = float(np.max(np.abs(np.subtract(vector, expected))))
            if difference > (HALF_TOLERANCE if name == HALF else TOLERANCE):  # HALF is the last
                raise InputError(f"{name}: vectors differ from the others' by {difference}")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

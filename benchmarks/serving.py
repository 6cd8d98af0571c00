"""Milliseconds of exported encoders: SavedModel and LiteRT beside Hugging Face and ONNX Runtime.

    python -m benchmarks.serving --sizes small,base

From token ids to hidden states. Weights are random, and the same in all systems of an architecture;
where the vectors of the first token differ by more than 1e-3 (of float16 1e-2), it ends; 8-bit ones
are not compared. Each system is a process of its own, with a thread for each core.
"""

from __future__ import annotations

import numpy as np
from absl import app, flags

from benchmarks.interleaved import Result, System, measure
from benchmarks.latency_table import print_rows, run, size_note
from errors import InputError, main_with_clear_errors

_SIZES = flags.DEFINE_list("sizes", ["small"], "Named sizes of ConvBERT.")
_BATCHES = flags.DEFINE_list("batches", ["1", "8", "32"], "Batch sizes.")
_LENGTHS = flags.DEFINE_list(
    "lengths", ["16", "32", "128", "512"], "Sequence lengths, special tokens included."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.")
TOLERANCE, HALF_TOLERANCE = 1e-3, 1e-2  # between vectors of the first tokens

# Names, what measures them in benchmarks/served.py or elsewhere, and what of `prepare` they read.
SAVED, LITERT, LITERT_ELECTRA = "SavedModel", "LiteRT", "LiteRT ELECTRA"
HALF, INT8 = "LiteRT float16", "LiteRT int8"
HF, ORT, ORT_ELECTRA = "HF", "ORT ConvBERT", "ORT ELECTRA"
ORT_INT8 = "ORT ELECTRA int8"
SYSTEMS = {
    SAVED: ("benchmarks.served:saved_model", {"folder": "convbert/saved"}),
    LITERT: ("benchmarks.served:litert", {"path": "convbert/float32/model.tflite"}),
    HALF: ("benchmarks.served:litert", {"path": "convbert/float16/model.tflite"}),
    INT8: ("benchmarks.served:litert", {"path": "convbert/int8/model.tflite"}),
    LITERT_ELECTRA: ("benchmarks.served:litert", {"path": "electra/float32/model.tflite"}),
    HF: ("benchmarks.huggingface:hidden_states", {"folder": "convbert/huggingface"}),
    ORT: ("benchmarks.served:onnx_runtime", {"folder": "convbert/huggingface"}),
    ORT_ELECTRA: ("benchmarks.served:onnx_runtime", {"folder": "electra/huggingface"}),
    ORT_INT8: ("benchmarks.served:onnx_runtime", {"folder": "electra/huggingface", "int8": True}),
}
# The same weights, in floating point.
_SAME = ((SAVED, LITERT, HALF, HF, ORT), (LITERT_ELECTRA, ORT_ELECTRA))
# Targets: the first should take at least as long as the second.
RATIOS = (
    *((slow, LITERT) for slow in (LITERT_ELECTRA, HF, ORT_ELECTRA)),
    (ORT_INT8, INT8),
    (ORT, SAVED),
)


def main(argv: list[str]) -> None:
    """Prints a row per size, batch and length."""
    shapes = _SIZES.value, _BATCHES.value, _LENGTHS.value

    def measured(compared):
        return measure(compared, _ROUNDS.value)

    print_rows(list(SYSTEMS), RATIOS, shapes, measured, prepare, systems, check_agreement)


def systems(folder: str, batch: int, length: int) -> list[System]:
    """All for one batch and length."""
    found = []
    for name, (target, reads) in SYSTEMS.items():
        places = {
            key: f"{folder}/{value}" if isinstance(value, str) else value
            for key, value in reads.items()
        }
        found.append(System(name, target, {**places, "batch": batch, "length": length}))
    return found


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
        folders = ("saved", "float32", "float16", "int8", "huggingface")
        notes += [size_note(f"{name}, {form}", f"{folder}/{system}/{form}") for form in folders]
    return notes


def check_agreement(results: dict[str, Result]) -> None:
    """Raises InputError where models of the same weights give different vectors."""
    for names in _SAME:
        found = {name: results[name].facts.get("vector") for name in names}
        found = {name: vector for name, vector in found.items() if vector}
        for name, vector in found.items():
            expected = next(iter(found.values()))
            difference = float(np.max(np.abs(np.subtract(vector, expected))))
            if difference > (HALF_TOLERANCE if name == HALF else TOLERANCE):
                raise InputError(f"{name}: vectors differ from the others' by {difference}")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

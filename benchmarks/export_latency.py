"""Latency and throughput of an exported model, from text to vector, beside Hugging Face's.

    python -m benchmarks.export_latency --sizes small,base

All systems have the same weights: a model directory of random ones is exported as SavedModels and
converted to Hugging Face's format, so that both commands are run, too. Both sides tokenize: the
SavedModel in its graph, Hugging Face with its fast tokenizer. The vocabulary is made up, a word
being one piece, so that texts have the wanted number of tokens.
"""

from __future__ import annotations

import numpy as np
from absl import app, flags

from benchmarks.interleaved import Result, System, measure
from benchmarks.latency_table import Comparison, print_rows, run, size_note
from errors import InputError, main_with_clear_errors

_SIZES = flags.DEFINE_list("sizes", ["small"], "Named sizes of ConvBERT.")
_BATCHES = flags.DEFINE_list("batches", ["1", "32"], "Batch sizes.")
_LENGTHS = flags.DEFINE_list(
    "lengths", ["16", "128", "512"], "Sequence lengths, special tokens included."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.")
PRECISIONS = {"float32": "SavedModel", "mixed_bfloat16": "SavedModel bfloat16"}
PEERS = {"float32": "HF ConvBERT", "mixed_bfloat16": "HF ConvBERT bfloat16"}
NAMES = (*PRECISIONS.values(), *PEERS.values())
TOLERANCE = 1e-4  # between the float32 vectors of both


def main(argv: list[str]) -> None:
    """Prints a row per size, batch and length."""
    pairs = [(PEERS[precision], PRECISIONS[precision]) for precision in PRECISIONS]
    shapes = _SIZES.value, _BATCHES.value, _LENGTHS.value

    def measured(compared):
        return measure(compared, _ROUNDS.value)

    comparison = Comparison(shapes, prepare, systems, measured, check_agreement)
    print_rows(NAMES, pairs, comparison)


def systems(folder: str, batch: int, length: int) -> list[System]:
    """All four for one batch and length."""
    shape = {"batch": batch, "length": length}
    compared = []
    for precision, name in PRECISIONS.items():
        arguments = {**shape, "folder": f"{folder}/{precision}"}
        compared.append(System(name, "benchmarks.ours:vectors", arguments))
    for precision, name in PEERS.items():
        arguments = {**shape, "folder": f"{folder}/huggingface", "precision": precision}
        compared.append(System(name, "benchmarks.huggingface:text_vectors", arguments))
    return compared


def prepare(size: str, folder: str) -> list[str]:
    """Makes the model directory, both SavedModels and the Hugging Face folder; says their sizes."""
    model, peer = f"{folder}/model", f"{folder}/huggingface"
    run("benchmarks.random_model", size, model)
    for precision in PRECISIONS:
        options = ["--precision", precision, "--max_seq_length", "512"]
        output = f"{folder}/{precision}"
        run("export_savedmodel", "--model_dir", model, "--output_dir", output, *options)
    run("checkpoints.convert", "--target", "huggingface", "--input", model, "--output", peer)
    folders = (*PRECISIONS, "huggingface")
    return [size_note(f"{size}, {name}", f"{folder}/{name}") for name in folders]


def check_agreement(results: dict[str, Result]) -> None:
    """Raises InputError where the models compared give different float32 vectors."""
    ours, theirs = (results[names["float32"]].facts.get("vector") for names in (PRECISIONS, PEERS))
    if ours and theirs:
        difference = float(np.max(np.abs(np.subtract(ours, theirs))))
        if difference > TOLERANCE:
            raise InputError(f"the vectors of both should be the same. They differ by {difference}")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

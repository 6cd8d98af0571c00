"""Latency and throughput of an exported model, from text to vector, beside Hugging Face's.

    python -m benchmarks.export_latency --sizes small,base

All contestants have the same weights: a model directory of random ones is exported as SavedModels
and converted to Hugging Face's format, so that both commands are run, too. Both sides tokenise: the
SavedModel in its graph, Hugging Face with its fast tokenizer. The vocabulary is made up, a word
being one piece, so that texts have the wanted number of tokens.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np
from absl import app, flags

from benchmarks.contest import Contestant, Result, compete, ratio
from benchmarks.table import Report, cell, milliseconds
from errors import InputError, main_with_clear_errors

_SIZES = flags.DEFINE_list("sizes", ["small"], "Named sizes of ConvBERT.")
_BATCHES = flags.DEFINE_list("batches", ["1", "32"], "Texts of a call.")
_LENGTHS = flags.DEFINE_list("lengths", ["16", "128", "512"], "Tokens of a text, special ones too.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Measurements of each, in turns.")
PRECISIONS = {"float32": "SavedModel", "mixed_bfloat16": "SavedModel bfloat16"}
PEERS = {"float32": "HF ConvBERT", "mixed_bfloat16": "HF ConvBERT bfloat16"}
NAMES = (*PRECISIONS.values(), *PEERS.values())
# The columns of ratios: how many times as fast the second is as the first.
RATIOS = (("HF ConvBERT", "SavedModel"), ("HF ConvBERT bfloat16", "SavedModel bfloat16"))
OVER_HUGGING_FACE = {"small": 1.5, "base": 1.3}  # targets of inference
TOLERANCE = 1e-4  # between the float32 vectors of both


def main(argv: list[str]) -> None:
    """Prints a row per size, batch and length."""
    report = Report(
        "size",
        "batch",
        "tokens",
        *(f"{name} ms" for name in NAMES),
        *(f"{slow} / {fast}" for slow, fast in RATIOS),
    )
    notes = []
    for size in _SIZES.value:
        with tempfile.TemporaryDirectory() as folder:
            ratios = []
            notes += prepare(size, folder)
            for batch, length in itertools.product(_BATCHES.value, _LENGTHS.value):
                results = compete(contestants(folder, int(batch), int(length)), _ROUNDS.value)
                check_agreement(results)
                ratios.append([ratio(results[slow], results[fast]) for slow, fast in RATIOS])
                report.missing(results)
                times = [milliseconds(results[name]) for name in NAMES]
                report.row(size, batch, length, *times, *(cell(value) for value in ratios[-1]))
        if size in OVER_HUGGING_FACE:
            what = f"the SavedModel's speed over Hugging Face's, float32, {size}, lowest"
            slowest = np.min([row[0] for row in ratios])
            report.target(what, slowest, at_least=OVER_HUGGING_FACE[size])
    report.end(*notes)


def contestants(folder: str, batch: int, length: int) -> list[Contestant]:
    """All four for one batch and length."""
    arguments = {"batch": batch, "length": length}
    made = []
    for precision, name in PRECISIONS.items():
        own = {**arguments, "folder": os.path.join(folder, precision)}
        made.append(Contestant(name, "benchmarks.served:vectors", own))
    for precision, name in PEERS.items():
        own = {**arguments, "folder": os.path.join(folder, "huggingface"), "precision": precision}
        made.append(Contestant(name, "benchmarks.huggingface:text_vectors", own))
    return made


def prepare(size: str, folder: str) -> list[str]:
    """Makes the model directory, both SavedModels and the Hugging Face folder; says their sizes."""
    model = os.path.join(folder, "model")
    run("benchmarks.served", size, model)
    for precision in PRECISIONS:
        options = ["--precision", precision, "--max_seq_length", "512"]
        output = os.path.join(folder, precision)
        run("export_savedmodel", "--model_dir", model, "--output_dir", output, *options)
    output = os.path.join(folder, "huggingface")
    run("checkpoints.convert", "--target", "huggingface", "--input", model, "--output", output)
    notes = []
    for name in (*PRECISIONS, "huggingface"):
        megabytes = disk_usage(os.path.join(folder, name)) / 1e6
        notes.append(f"- {size}, {name}: {megabytes:.1f} MB on disk")
    return notes


def run(module: str, *arguments: str) -> None:
    """Runs `python -m module`; InputError with its last words when it fails."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")


def disk_usage(folder: str) -> int:
    """Bytes of all files below a folder."""
    places = os.walk(folder)
    return sum(os.path.getsize(os.path.join(place, n)) for place, _, names in places for n in names)


def check_agreement(results: dict[str, Result]) -> None:
    """Refuses to compare models that give different float32 vectors."""
    ours, theirs = (results[name].facts.get("vector") for name in RATIOS[0][::-1])
    if ours and theirs:
        difference = float(np.max(np.abs(np.subtract(ours, theirs))))
        if difference > TOLERANCE:
            raise InputError(f"the vectors of both should be the same. They differ by {difference}")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

"""Sequences per second of whole pre-training steps on a GPU, beside Hugging Face's with PyTorch.

    python -m benchmarks.gpu_step --export steps/   # with TensorFlow, on any machine
    python -m benchmarks.gpu_step --run steps/      # with JAX (and PyTorch), on the GPU

For a GPU that JAX can use and the installed TensorFlow cannot. The first command writes a folder
for each size and precision; the second one times what is in them, with JAX's XLA in place of
TensorFlow's, and imports no TensorFlow. Steps follow one another in the same memory. A row has

- sequences/s, of the step alone: the batch is on the device already;
- TFLOP/s of the step's matrix products (see `ours.step_flops`) and their share of a ceiling: square
  products of the same type, in interleaved runs with the step. XLA multiplies float32 as it does by
  default, on NVIDIA GPUs since Ampere in TF32, and PyTorch is told to do the same;
- the largest relative difference of the first losses from those that TensorFlow computed.

Hugging Face's networks are compiled with torch.compile. Their TFLOP/s count our step's operations,
although the small size's generator is narrower there (see benchmarks.huggingface).

--run needs jax and jaxlib (tried: 0.10.2), numpy and absl-py; its peers torch and transformers.
"""

from __future__ import annotations

import glob
import math
import os
from typing import Any

from absl import app, flags

import files
from benchmarks.interleaved import Result, System, measure, ratio
from benchmarks.table import PRECISIONS, Report
from errors import InputError, main_with_clear_errors
from plugins import lazily

_EXPORT = flags.DEFINE_string("export", None, "Folder to write the steps to.")
_SIZES = flags.DEFINE_list("sizes", ["small", "base"], "Sizes of ConvBERT, with --export.")
_PRECISIONS = flags.DEFINE_list(
    "precisions", list(PRECISIONS), "Compute dtype policies, with --export."
)
_BATCH = flags.DEFINE_integer("batch", 128, "Sequences of a step, with --export.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence, with --export.")
_CHECK_STEPS = flags.DEFINE_integer(
    "check_steps", 2, "Number of TensorFlow's own steps on the CPU, with --export. Long for base."
)
_RUN = flags.DEFINE_string("run", None, "Folder that --export wrote.")
_STEPS = flags.DEFINE_integer("steps", 10, "Steps between two waits for the loss, with --run.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Interleaved runs of each system, with --run.")
_SIDE = flags.DEFINE_integer("side", 8192, "Side of the product that is the ceiling, with --run.")
_PEERS = flags.DEFINE_bool("peers", True, "Comparison with Hugging Face's step, with --run.")

# The systems of a row share the GPU, though only one at a time works.
_ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_COLUMNS = {"step": "", "device": "", "batch": "d", "length": "d", "sequences/s": ".1f"}
_COLUMNS |= {"TFLOP/s": ".4g", "of ceiling": ".1%", "loss differs": ".1e", "time / ours": ".2f"}


def main(argv: list[str]) -> None:
    """Exports or runs."""
    if bool(_EXPORT.value) == bool(_RUN.value):
        raise InputError("either --export or --run should name a folder")
    if _EXPORT.value:
        export()
    else:
        run()


def export() -> None:
    """Writes a folder for each size and precision."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the program is the same for every device
    export_step = lazily("benchmarks.gpu_export:export")  # TensorFlow, which reads the environment
    for size in _SIZES.value:
        for precision in _PRECISIONS.value:
            folder = os.path.join(_EXPORT.value, f"{size}-{precision}")
            shape = (_BATCH.value, _LENGTH.value)
            export_step(folder, size, *shape, precision, _CHECK_STEPS.value)
            print(f"{folder} written", flush=True)


def run() -> None:
    """Prints a table with rows for each folder, and what did not run."""
    folders = sorted(os.path.dirname(p) for p in glob.glob(f"{_RUN.value}/*/step.json"))
    if not folders:
        raise InputError(f"{_RUN.value}: has no folder with a step.json in it")
    described = [files.read_json(f"{folder}/step.json") for folder in folders]
    report = Report(_COLUMNS, described[0]["commit"] or "unknown")
    for folder, description in zip(folders, described):
        results = measure(systems(folder, description), _ROUNDS.value)
        for name in results:
            label = f"{os.path.basename(folder)}, {name}"
            report.row(label, *cells(name, description, results))
        report.missing(results)
    report.end(f"exported with tensorflow {described[0]['tensorflow']}")


def systems(folder: str, description: dict[str, Any]) -> list[System]:
    """Ours, the peer and the ceiling of one folder."""
    sizes = ("fields", "generator_fields", "batch", "length", "precision")
    peer = {name: description[name] for name in sizes}
    product = {"side": _SIDE.value, "dtype": description["precision"].removeprefix("mixed_")}
    compared = {
        "ours": ("exported:exported_step", {"folder": folder, "steps": _STEPS.value}),
        "Hugging Face": (
            "huggingface:pretraining_step",
            {**peer, "steps": _STEPS.value, "gpu": True},
        ),
        "ceiling": ("exported:matrix_product", product),
    }
    if not _PEERS.value:
        del compared["Hugging Face"]
    return [
        System(name, f"benchmarks.{target}", arguments, environment=_ENVIRONMENT)
        for name, (target, arguments) in compared.items()
    ]


def cells(name: str, description: dict[str, Any], results: dict[str, Result]) -> list[str | float]:
    """The cells of a row after the first."""
    result, ours, ceiling = results[name], results["ours"], results["ceiling"]
    device = result.facts.get("device", "not run")
    if name == "ceiling":
        return [device, "", "", "", result.gflops / 1e3, result.gflops / ceiling.gflops, "", ""]
    speed = _STEPS.value * description["flops"] / result.median / 1e9
    checked = name == "ours" and (description["losses"] or ours.missing)
    return [
        device,
        description["batch"],
        description["length"],
        _STEPS.value * description["batch"] / result.median,
        speed / 1e3,
        speed / ceiling.gflops,
        result.facts.get("loss_difference", math.nan) if checked else "",
        ratio(result, ours),
    ]


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

"""Sequences per second of whole pre-training steps on a GPU, beside Hugging Face's with PyTorch.

    python -m benchmarks.gpu_step --export steps/   # with TensorFlow, on any machine
    python -m benchmarks.gpu_step --run steps/      # with JAX (and PyTorch), on the GPU

For a GPU that JAX can use and the installed TensorFlow cannot. The first command writes a folder
for each size and precision; the second one times what is in them, with JAX's XLA in place of
TensorFlow's, and imports no TensorFlow. Steps follow one another in the same memory. A row has

- sequences/s, of the step alone: the batch is on the device already;
- TFLOP/s of the step's matrix products (see `ours.step_flops`) and their share of a ceiling: square
  products of the same type, measured in turns with the step. XLA multiplies float32 as it does by
  default, on NVIDIA GPUs since Ampere in TF32, and PyTorch is told to do the same;
- the largest relative difference of the first losses from those that TensorFlow computed.

Hugging Face's networks are compiled with torch.compile. Their TFLOP/s count our step's operations,
although the small size's generator is narrower there (see benchmarks.huggingface).

--run needs jax and jaxlib (tried: 0.10.2), numpy and absl-py; its peers torch and transformers.
"""

from __future__ import annotations

import glob
import importlib.metadata
import math
import os
import shlex
import sys
from typing import Any

from absl import app, flags

import files
from analysis.tables import format_table
from benchmarks.contest import Contestant, Result, compete, ratio
from errors import InputError, main_with_clear_errors

_EXPORT = flags.DEFINE_string("export", None, "Where to write the steps.")
_SIZES = flags.DEFINE_list("sizes", ["small", "base"], "With --export: sizes of ConvBERT.")
_PRECISIONS = flags.DEFINE_list("precisions", ["float32", "mixed_bfloat16"], "With --export.")
_BATCH = flags.DEFINE_integer("batch", 128, "With --export: sequences of a step.")
_LENGTH = flags.DEFINE_integer("length", 128, "With --export: tokens of a sequence.")
_CHECK_STEPS = flags.DEFINE_integer(
    "check_steps", 2, "With --export: steps that TensorFlow takes, on the CPU. Long for base."
)
_RUN = flags.DEFINE_string("run", None, "What --export wrote.")
_STEPS = flags.DEFINE_integer("steps", 10, "With --run: steps between two looks at the loss.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "With --run: measurements of each, in turns.")
_SIDE = flags.DEFINE_integer("side", 8192, "With --run: of the product that is the ceiling.")
_PEERS = flags.DEFINE_bool("peers", True, "With --run: whether to measure Hugging Face's.")

# The contestants of a row share the GPU, though only one at a time works.
_ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_DTYPES = {"float32": "float32", "mixed_bfloat16": "bfloat16"}
_COLUMNS = ("step", "device", "batch", "length", "sequences/s", "TFLOP/s", "of ceiling")
_COLUMNS += ("loss differs", "time / ours")
NOT_RUN = "not run"


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
    from benchmarks import gpu_export

    for size in _SIZES.value:
        for precision in _PRECISIONS.value:
            folder = os.path.join(_EXPORT.value, f"{size}-{precision}")
            built = gpu_export.build(size, _BATCH.value, _LENGTH.value, precision)
            gpu_export.export(folder, *built, _CHECK_STEPS.value)
            print(f"{folder} written", flush=True)


def run() -> None:
    """Prints a table with rows for each folder, and what did not run."""
    folders = sorted(os.path.dirname(p) for p in glob.glob(f"{_RUN.value}/*/step.json"))
    if not folders:
        raise InputError(f"{_RUN.value}: has no folder with a step.json in it")
    rows, missing = [], {}
    for folder in folders:
        description = files.read_json(f"{folder}/step.json")
        results = compete(contestants(folder, description), _ROUNDS.value)
        for name, result in results.items():
            rows.append(cells(f"{os.path.basename(folder)}, {name}", description, results, result))
            if result.missing:
                missing[f"- {name}: {NOT_RUN}, {result.missing}"] = None
    tensorflow, commit = description["tensorflow"], description["commit"] or "unknown"
    versions = [f"{name} {_version(name)}" for name in ("jax", "torch", "transformers")]
    print(
        f"- exported with tensorflow {tensorflow}, commit {commit.replace('-dirty', ', modified')}"
    )
    print(f"- {', '.join(versions)}")
    print(f"- `python -m benchmarks.gpu_step {shlex.join(sys.argv[1:])}`")
    print(f"\n{format_table(_COLUMNS, rows, markdown=True)}")
    if missing:
        print("", "Not run:", "", *missing, sep="\n")


def contestants(folder: str, description: dict[str, Any]) -> list[Contestant]:
    """Ours, the ceiling and the peer of one folder."""
    sizes = ("fields", "generator_fields", "batch", "length", "precision")
    peer = {name: description[name] for name in sizes}
    product = {"side": _SIDE.value, "dtype": _DTYPES[description["precision"]]}
    chosen = {
        "ours": ("exported_step", {"folder": folder, "steps": _STEPS.value}),
        "Hugging Face": ("huggingface_step", {**peer, "steps": _STEPS.value}),
        "ceiling": ("matrix_product", product),
    }
    if not _PEERS.value:
        del chosen["Hugging Face"]
    return [
        Contestant(name, f"benchmarks.exported:{function}", arguments, environment=_ENVIRONMENT)
        for name, (function, arguments) in chosen.items()
    ]


def cells(
    name: str, description: dict[str, Any], results: dict[str, Result], result: Result
) -> list[str]:
    """The cells of a row."""
    device = result.facts.get("device", NOT_RUN)
    ours, ceiling = results["ours"], results["ceiling"]
    if result is ceiling:
        speed = ceiling.facts.get("flops", math.nan) / ceiling.median / 1e12
        return [name, device, "", "", "", _cell(speed, ".4g"), "100%", "", ""]
    flops = _STEPS.value * description["flops"]
    share = flops / ceiling.facts.get("flops", math.nan) * ratio(ceiling, result)
    difference = ""
    if result is ours and (description["losses"] or ours.missing):
        difference = _cell(ours.facts.get("loss_difference", math.nan), ".1e")
    return [
        name,
        device,
        str(description["batch"]),
        str(description["length"]),
        _cell(_STEPS.value * description["batch"] / result.median, ".1f"),
        _cell(flops / result.median / 1e12, ".4g"),
        _cell(share, ".1%"),
        difference,
        _cell(ratio(result, ours)),
    ]


def _cell(value: float, form: str = ".2f") -> str:
    return NOT_RUN if math.isnan(value) else format(value, form)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

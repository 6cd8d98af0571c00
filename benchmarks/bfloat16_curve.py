"""Whether mixed_bfloat16 trains as float32 does: the same run in both, and a picture of the losses.

    python -m benchmarks.bfloat16_curve --data_dir DATA --output docs/bfloat16.png

Two runs of run_pretraining.py, equal but for --precision; data, masks and dropout are the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from absl import app, flags

import files
from benchmarks.machine import header
from errors import InputError, main_with_clear_errors
from training.monitoring import read_metrics

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Of build_pretraining_data.py.", required=True)
_RECIPE = flags.DEFINE_string("recipe", "configs/wiki_tiny.json", "As for run_pretraining.py.")
_STEPS = flags.DEFINE_integer("steps", 500, "Of training; losses are means of 20.")
_OUTPUT = flags.DEFINE_string("output", "bfloat16.png", "The picture.")
PRECISIONS = ("float32", "mixed_bfloat16")
LOSSES = ("masked_lm_loss", "disc_loss")


def main(argv: list[str]) -> None:
    """Prints the largest differences of the losses and draws their curves."""
    print(header())
    with tempfile.TemporaryDirectory() as folder:
        curves = {name: train(os.path.join(folder, name), name) for name in PRECISIONS}
    first, second = curves.values()
    for name in LOSSES:
        apart = np.abs(first[name] - second[name])
        print(
            f"{name}: {first[name][0]:.3f} to {first[name][-1]:.3f} in float32; mixed_bfloat16 at"
            f" most {apart.max():.4f} away (mean {apart.mean():.4f}), {apart[-1]:.4f} at the end"
        )
    draw(curves)


def train(model_dir: str, precision: str) -> dict[str, np.ndarray]:
    """Trains and returns the logged steps and losses."""
    hparams = {"num_train_steps": _STEPS.value, "iterations_per_loop": 20}
    command = ["run_pretraining.py", "--data_dir", _DATA_DIR.value, "--model_name", precision]
    command += ["--model_dir", model_dir, "--recipe", _RECIPE.value, "--precision", precision]
    finished = subprocess.run([sys.executable, *command, "--hparams", json.dumps(hparams)])
    if finished.returncode:
        raise InputError(f"training in {precision} ended with {finished.returncode}; see above")
    rows = [row for row in read_metrics(model_dir) if row["split"] == "train"]
    return {name: np.array([row[name] for row in rows]) for name in ("step", *LOSSES)}


def draw(curves: dict[str, dict[str, np.ndarray]]) -> None:
    """One panel per loss, both precisions in each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(LOSSES), figsize=(9, 3.2), layout="constrained")
    for axis, loss in zip(axes, LOSSES):
        for (precision, curve), style in zip(curves.items(), ("-", "--")):
            axis.plot(curve["step"], curve[loss], style, label=precision, linewidth=1.3)
        axis.set(title=loss, xlabel="step")
        axis.grid(alpha=0.3)
        axis.legend()
    with files.replacing(_OUTPUT.value) as temporary:
        figure.savefig(temporary, format="png", dpi=90)
    print(f"curves in {_OUTPUT.value}")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

"""The same steps by every strategy, with less memory and by XLA: losses and weights beside another.

    python -m benchmarks.strategies
    python -m benchmarks.strategies --strategies one_device,mirrored:2 --xla no --steps 10

Each strategy is a process of its own (multi_worker: two, on this machine), which trains the same
model from the same seed once for each number of micro-batches, with and without XLA and
rematerialization. Differences are from one device that does nothing of the kind: of the losses of
all steps the largest relative one, of the weights the largest.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import itertools
import subprocess
import sys
import tempfile

import numpy as np
from absl import app, flags

from benchmarks.table import Report
from errors import InputError, main_with_clear_errors
from plugins import lazily
from training import workers
from training.cluster import read_cluster

STRATEGIES = ("one_device", "mirrored:2", "multi_worker")
PLAIN = (1, False, False)  # the run that others are compared with
SWITCHES = {"no": False, "yes": True}
COLUMNS = ("micro-batches", "XLA", "rematerialized")
# They import TensorFlow, which comes after the workers have met.
make_data = lazily("benchmarks.strategy_runs:make_data")
read = lazily("benchmarks.strategy_runs:read")
train = lazily("benchmarks.strategy_runs:train")

FLAGS = flags.FLAGS
_STRATEGIES = flags.DEFINE_list("strategies", list(STRATEGIES), "Strategies compared.")
_STEPS = flags.DEFINE_integer("steps", 50, "Steps of training.")
_XLA = flags.DEFINE_multi_enum("xla", list(SWITCHES), list(SWITCHES), "XLA, one each time.")
_PARTS = flags.DEFINE_multi_integer(
    "micro_batches", [1, 2, 8], "Micro-batches of a device's share, one number each time."
)
_LAYERS = flags.DEFINE_integer("layers", 2, "Layers of ConvBERT-tiny.")
_FOLDER = flags.DEFINE_string("folder", "", "For a process of one strategy: data and results.")


def variants(strategy: str) -> list[tuple[int, bool, bool]]:
    """Micro-batches, XLA and rematerialization of each run of a strategy."""
    xla = [SWITCHES[name] for name in _XLA.value]
    found = list(itertools.product(_PARTS.value, xla, (False, True)))
    first = [PLAIN] if strategy == STRATEGIES[0] and PLAIN not in found else []
    return first + found


def main(argv: list[str]) -> None:
    """Prints the table, or makes one strategy's part of it."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    if _FOLDER.value:
        train_all(_STRATEGIES.value[0], _FOLDER.value)
        return
    if _STRATEGIES.value[:1] != [STRATEGIES[0]]:
        raise InputError(f"--strategies should begin with {STRATEGIES[0]}, the one compared with")
    report = Report(
        {
            "strategy": "",
            **dict.fromkeys(COLUMNS, ""),
            "first loss": ".6f",
            "last loss": ".6f",
            "losses differ by": ".1e",
            "weights differ by": ".1e",
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        make_data(folder)
        expected = None
        for strategy in _STRATEGIES.value:
            start(strategy, folder)
            for number, (parts, *switches) in enumerate(variants(strategy)):
                losses, weights = read(folder, strategy, number)
                expected = expected or (losses, weights)
                report.row(
                    strategy,
                    str(parts),
                    *("yes" if switch else "no" for switch in switches),
                    losses[0],
                    losses[-1],
                    np.max(np.abs(losses / expected[0] - 1)),
                    max(np.max(np.abs(a - b)) for a, b in zip(weights, expected[1], strict=True)),
                )
    report.end(
        f"{_STEPS.value} steps of {_LAYERS.value} layers of ConvBERT-tiny, float32,"
        " dropout on, batches of 16 x 32."
    )


def start(strategy: str, folder: str) -> None:
    """Runs the processes of a strategy to their end."""
    command = [sys.executable, "-m", "benchmarks.strategies", f"--strategies={strategy}"]
    command += [f"--xla={name}" for name in _XLA.value]
    command += [f"--micro_batches={number}" for number in _PARTS.value]
    command += [f"--folder={folder}", f"--steps={_STEPS.value}", f"--layers={_LAYERS.value}"]
    if strategy == "multi_worker":
        launch = [sys.executable, "-m", "training.launch", "--hosts=localhost:2", "--"]
        command = [*launch, *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{strategy}: {(done.stdout + done.stderr)[-2000:]}")


def train_all(strategy: str, folder: str) -> None:
    """Trains every variant by one strategy, in a process of its own."""
    if strategy == "multi_worker":
        with workers.joined(read_cluster(os.environ), {}):
            train(strategy, variants(strategy), folder, _STEPS.value, _LAYERS.value)
    else:
        train(strategy, variants(strategy), folder, _STEPS.value, _LAYERS.value)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

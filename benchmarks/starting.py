"""Seconds from a command to the end of its first training step, and from a sweep's run to the next.

    python -m benchmarks.starting

Each row is the median over runs of the command as a user gives it, on made-up data, in a folder of
its own. A run says in `metrics.jsonl` when its first step was over. Those of up to 200 steps start
sooner, see `model.layer_function`.
"""

from __future__ import annotations

import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from benchmarks.latency_table import run
from benchmarks.made_up_tasks import made_up_task
from benchmarks.table import Report
from benchmarks.texts import texts
from errors import InputError, main_with_clear_errors
from training.model_directory import RESULT_FILE
from training.monitoring import read_metrics

_SIZE = flags.DEFINE_string("size", "small", "Size of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.", lower_bound=1)
_LENGTH = flags.DEFINE_integer("length", 128, "Length of the sequences.", lower_bound=8)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Runs of each command.", lower_bound=1)
_SEQUENCES, _FEW = 512, 4


def main(argv: list[str]) -> None:
    """Prints a row for each command."""
    report = Report({"": "", "steps": ",d", "seconds": ".1f", "from": ".1f", "to": ".1f"})
    with tempfile.TemporaryDirectory() as folder:
        model, data, task = _prepare(folder)
        for steps in (100, 100_000):
            found = [_pretraining(data, steps, i) for i in range(_ROUNDS.value)]
            _row(report, "pre-training: command to first step", steps, found)
        for steps in (100, 1000):
            found = [_fine_tuning(model, task, steps, i) for i in range(_ROUNDS.value)]
            _row(report, "fine-tuning: command to first step", steps, found)
        found = [_next_run(model, task, i) for i in range(_ROUNDS.value)]
        _row(report, "sweep: result of a run to first step of the next", _FEW, found)
    report.end()


def _row(report: Report, name: str, steps: int, seconds: list[float]) -> None:
    report.row(name, steps, statistics.median(seconds), min(seconds), max(seconds))


def _prepare(folder: str) -> tuple[str, str, str]:
    """A pre-trained model, the data of a pre-training and a task's declaration."""
    model, data = os.path.join(folder, "model"), os.path.join(folder, "data")
    run("benchmarks.random_model", f"convbert-{_SIZE.value}", model)
    corpus, vocabulary = os.path.join(folder, "corpus.txt"), os.path.join(model, "vocab.txt")
    with open(corpus, "w", encoding="utf-8") as file:
        file.write("\n".join(texts(4 * _SEQUENCES, _LENGTH.value)))
    given = {"corpus": corpus, "vocab": vocabulary, "output_dir": data}
    given["max_seq_length"] = str(_LENGTH.value)
    run("build_pretraining_data", *(f"--{name}={value}" for name, value in given.items()))
    made_up_task("classification", _SEQUENCES, _LENGTH.value, folder)
    return model, data, os.path.join(folder, "classification.json")


def _pretraining(data: str, steps: int, number: int) -> float:
    name = f"{steps}_{number}"
    hparams = {"num_train_steps": steps, "num_warmup_steps": steps // 10}
    command = ["run_pretraining", f"--data_dir={data}", f"--model_name={name}"]
    command += [f"--recipe=configs/convbert_{_SIZE.value}.json", _hparams(**hparams)]
    return _to_first_step(command, os.path.join(data, "models", name))


def _fine_tuning(model: str, task: str, steps: int, number: int) -> float:
    command, runs = _sweep(model, task, f"alone_{steps}_{number}", steps, 1)
    return _to_first_step(command, runs)


def _next_run(model: str, task: str, number: int) -> float:
    command, runs = _sweep(model, task, f"sweep_{number}", _FEW, 2)
    run(*command)
    first, second = sorted(glob.glob(runs))
    return read_metrics(second)[0]["time"] - os.path.getmtime(os.path.join(first, RESULT_FILE))


def _sweep(model: str, task: str, name: str, steps: int, trials: int) -> tuple[list[str], str]:
    """The command, and the pattern of its runs' folders."""
    data = os.path.dirname(task)
    folder = os.path.join(data, name)
    given = {"model_dir": model, "output_dir": folder, "task": task, "data_dir": data}
    command = ["run_finetuning", *(f"--{key}={value}" for key, value in given.items())]
    command += [f"--num_trials={trials}", _hparams(max_steps=steps)]
    return command, os.path.join(folder, "classification", "*", "trial_*")


def _hparams(**values: int) -> str:
    values |= {"train_batch_size": _BATCH.value, "max_seq_length": _LENGTH.value}
    return f"--hparams={json.dumps({**values, 'iterations_per_loop': 1})}"


def _to_first_step(command: list[str], folder: str) -> float:
    """Seconds from the command until the first step of the run, which ends there.

    Args:
        folder: of the run, or a pattern of it.
    """
    started = time.time()
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-m", *command], **silent)
    while not (rows := [row for each in glob.glob(folder) for row in read_metrics(each)]):
        if process.poll() is not None:
            raise InputError(f"ended with {process.returncode} before its first step: {command}")
        time.sleep(0.05)
    process.kill()
    process.wait()
    return rows[0]["time"] - started


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

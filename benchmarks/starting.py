"""Seconds from a command to the end of its first training step, and from a sweep's run to the next.

    python -m benchmarks.starting

Each row is the median over rounds of the command as a user gives it, on made-up data: pre-training
on sequences of one length, fine-tuning on sentences. A run says in `metrics.jsonl` when its first
step was over. Runs of up to 200 steps start sooner, see `model.layer_function`.
"""

from __future__ import annotations

import functools
import glob
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from benchmarks.latency_table import run
from benchmarks.table import Report
from benchmarks.texts import sentences, texts
from errors import InputError, main_with_clear_errors
from files import write_json
from training.model_directory import RESULT_FILE
from training.monitoring import read_metrics

_SIZE = flags.DEFINE_string("size", "small", "Size of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.", lower_bound=1)
_LENGTH = flags.DEFINE_integer("length", 128, "Length of the sequences.", lower_bound=8)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Runs of each command.", lower_bound=1)
_SEQUENCES, _TASK = 512, "sentences"
_FEW, _MANY = 4, 201  # steps of which layers are functions, and are not
_NEXT = "sweep, from a run's result to the next run"
_numbers = itertools.count()


def main(argv: list[str]) -> None:
    """Prints a row for each command."""
    columns = {"seconds until the first step": "", "steps": ",d"}
    report = Report(columns | dict.fromkeys(("median", "from", "to"), ".1f"))
    with tempfile.TemporaryDirectory() as folder:
        model, data, task = _prepare(folder)
        rows = [
            (name, steps, functools.partial(measured, steps))
            for name, measured, counts in (
                ("pre-training", functools.partial(_pretraining, data), (100, 100_000)),
                ("fine-tuning", functools.partial(_fine_tuning, model, task), (100, 1000)),
                (_NEXT, functools.partial(_next_run, model, task), (_FEW, _MANY)),
            )
            for steps in counts
        ]
        found: list[list[float]] = [[] for _ in rows]
        for _ in range(_ROUNDS.value):
            for seconds, (_, _, measured) in zip(found, rows):
                seconds.append(measured())
    for (name, steps, _), seconds in zip(rows, found):
        report.row(name, steps, statistics.median(seconds), min(seconds), max(seconds))
    report.end()


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
    rows = [{"text": text, "label": i % 2} for i, text in enumerate(sentences(_SEQUENCES))]
    with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    task = os.path.join(folder, f"{_TASK}.json")
    columns = {"text_a": "text", "label": "label"}
    paths = {"train": "rows.jsonl", "dev": "rows.jsonl"}
    write_json(task, {"kind": "classification", "files": paths, "columns": columns})
    return model, data, task


def _pretraining(data: str, steps: int) -> float:
    name = _new_name()
    hparams = {"num_train_steps": steps, "num_warmup_steps": steps // 10}
    hparams["model_size"] = f"convbert-{_SIZE.value}"
    command = ["run_pretraining", f"--data_dir={data}", f"--model_name={name}"]
    command.append(_hparams(**hparams))
    return _to_first_step(command, os.path.join(data, "models", name))


def _fine_tuning(model: str, task: str, steps: int) -> float:
    return _to_first_step(*_sweep(model, task, steps, [1e-4]))


def _next_run(model: str, task: str, steps: int) -> float:
    command, runs = _sweep(model, task, steps, [1e-4, 2e-4])
    run(*command)
    first, second = sorted(glob.glob(runs), key=lambda folder: read_metrics(folder)[0]["time"])
    return read_metrics(second)[0]["time"] - os.path.getmtime(os.path.join(first, RESULT_FILE))


def _sweep(model: str, task: str, steps: int, rates: list[float]) -> tuple[list[str], str]:
    """The command, and the pattern of its runs' folders."""
    data = os.path.dirname(task)
    folder = os.path.join(data, _new_name())
    given = {"model_dir": model, "output_dir": folder, "task": task, "data_dir": data}
    command = ["run_finetuning", *(f"--{key}={value}" for key, value in given.items())]
    command += [f"--sweep={json.dumps({'learning_rate': rates})}", "--num_trials=1"]
    command.append(_hparams(max_steps=steps))
    return command, os.path.join(folder, _TASK, "*", "trial_*")


def _new_name() -> str:
    return f"run_{next(_numbers)}"


def _hparams(**values: int | str) -> str:
    values |= {"train_batch_size": _BATCH.value, "max_seq_length": _LENGTH.value}
    return f"--hparams={json.dumps({**values, 'iterations_per_loop': 1})}"


def _to_first_step(command: list[str], folder: str) -> float:
    """Seconds from the command until the first step of the run, which ends there.

    Args:
        folder: of the run, or a pattern of it.
    """
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = time.time()
    process = subprocess.Popen([sys.executable, "-m", *command], **silent)
    try:
        while not (rows := [row for each in glob.glob(folder) for row in read_metrics(each)]):
            if process.poll() is not None:
                raise InputError(f"ended with {process.returncode} before a step: {command}")
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    return rows[0]["time"] - started


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

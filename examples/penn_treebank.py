"""A causal transformer beside causal mixed attention on the Penn Treebank, and an n-gram baseline.

    python -m examples.penn_treebank --train ptb.train.txt --heldout ptb.valid.txt --output_dir DIR

Builds the data, trains both systems with each seed by configs/ptb_small.json, one run after the
other, and measures them on the held-out text in disjoint blocks and in sliding windows. Run it
again after an interruption: what is there is kept. Prints a table, also in DIR/table.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import files
import storage
from analysis.kneser_ney import KneserNey, perplexity, read_sentences
from errors import CommandError, main_with_clear_errors
from settings import read_json_object

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SYSTEMS = {
    "causal transformer": "causal-transformer-{size}",
    "causal mixed attention": "causal-mixed-{size}",
}


class Run(NamedTuple):
    """What one training run came to.

    Attributes:
        blocks: perplexity after the last step, disjoint blocks.
        windows: the same, sliding windows.
        lowest: the lowest of its evaluations, in blocks; chosen by the text it is measured on.
        seconds: of a step, the median of the logging intervals.
        step: the last one.
    """

    blocks: float
    windows: float
    lowest: float
    seconds: float
    step: int


def execute(*command: str) -> None:
    """Runs a command of this project; CommandError where it fails, which says why itself."""
    status = subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode
    if status:
        raise CommandError(f"{command[0]} ended with status {status}; run this again to resume")


def build(arguments: argparse.Namespace, max_seq_length: int) -> str:
    """Builds the data folder, or finds it complete."""
    folder = os.path.join(arguments.output_dir, "data")
    execute(
        *("build_pretraining_data.py", "--corpus", arguments.train, "--output_dir", folder),
        *("--corpus_format", "language_model", "--tokenizer", "words"),
        *("--heldout_corpus", arguments.heldout, "--max_seq_length", str(max_seq_length)),
    )
    return folder


def train(arguments: argparse.Namespace, data: str, system: str, seed: int) -> Run:
    """Trains a system with a seed, or resumes that, and measures it."""
    size = SYSTEMS[system].format(size=arguments.size)
    model = os.path.join(arguments.output_dir, f"{size}-{seed}")
    hparams = read_json_object(arguments.hparams) | {"model_size": size}
    execute(
        *("run_pretraining.py", "--data_dir", data, "--model_dir", model, "--do_eval"),
        *("--recipe", arguments.recipe, "--hparams", json.dumps(hparams), "--seed", str(seed)),
        *arguments.flags,
    )
    rows = read_metrics(model)
    step = max(row["step"] for row in rows if row["split"] == "train")
    contexts = (0, sequence_length(arguments) // 2)
    blocks, windows = (measure(model, data, c, step)["perplexity"] for c in contexts)
    lowest = min(row["perplexity"] for row in rows if row["split"] == "heldout")
    trained = [row for row in rows if row["split"] == "train"]
    seconds = [
        (row["time"] - before["time"]) / (row["step"] - before["step"])
        for before, row in itertools.pairwise(trained)
    ]
    return Run(blocks, windows, lowest, statistics.median(seconds or [float("nan")]), step)


def read_metrics(model: str) -> list[dict[str, Any]]:
    """The lines of a model directory's metrics.jsonl."""
    with storage.open(os.path.join(model, "metrics.jsonl"), "rb") as file:
        return [json.loads(line) for line in file]


def measure(model: str, data: str, context: int, step: int) -> dict[str, Any]:
    """The report of scoring.perplexity of the held-out text, which is kept beside the model.

    Args:
        step: the last one of the training; a report of another is made again.
    """
    output = os.path.join(model, f"perplexity-{context}.json")
    if not storage.exists(output) or files.read_json(output)["step"] != step:
        execute(
            *("-m", "scoring.perplexity", "--model_dir", model, "--data_dir", data),
            *("--context", str(context), "--output", output),
        )
    return files.read_json(output)


def sequence_length(arguments: argparse.Namespace) -> int:
    """The sequence length that the recipe and --hparams say."""
    recipe = read_json_object(arguments.recipe, "--recipe")
    return (recipe | read_json_object(arguments.hparams)).get("max_seq_length", 128)


def spread(values: Sequence[float]) -> str:
    """Mean and range."""
    low, high = min(values), max(values)
    return f"{statistics.mean(values):.2f} ({low:.2f} to {high:.2f})"


def table(runs: dict[str, list[Run]], order: int, baseline: float) -> str:
    """The systems that have runs, and the baseline, a row each."""
    lines = [
        "| system | seeds | steps | perplexity, disjoint blocks | sliding windows"
        " | lowest of the evaluations | ms per step |",
        "|---|---|---|---|---|---|---|",
    ]
    for system, found in runs.items():
        if found:
            cells = [system, str(len(found))]
            cells.append(", ".join(f"{step:,}" for step in sorted({run.step for run in found})))
            cells += [spread([getattr(run, name) for run in found]) for name in Run._fields[:3]]
            cells.append(f"{1000 * statistics.median(run.seconds for run in found):.0f}")
            lines.append(f"| {' | '.join(cells)} |")
    lines.append(f"| modified Kneser-Ney, order {order} | | | {baseline:.2f} (sentences) | | | |")
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    """Trains what is not trained, and prints the table after each run."""
    parser = argparse.ArgumentParser(prog="python -m examples.penn_treebank")
    parser.add_argument("--train", required=True, help="Text to train on, a sentence per line.")
    parser.add_argument("--heldout", required=True, help="Text to measure on.")
    parser.add_argument("--output_dir", required=True, help="Folder of data, models and table.")
    parser.add_argument("--size", choices=("small", "tiny"), default="small", help="Model size.")
    parser.add_argument("--seeds", type=int, default=3, help="Number of runs of each system.")
    parser.add_argument("--order", type=int, default=5, help="Order of the n-gram baseline.")
    recipe = os.path.join(ROOT, "configs", "ptb_small.json")
    parser.add_argument("--recipe", default=recipe, help="Hyper-parameters, as a JSON file.")
    parser.add_argument("--hparams", default="", help="JSON text or file; overrides the recipe.")
    parser.add_argument("flags", nargs="*", help="Flags of run_pretraining.py, after `--`.")
    arguments = parser.parse_args(argv[1:])
    for name in ("train", "heldout", "output_dir"):
        setattr(arguments, name, os.path.abspath(getattr(arguments, name)))
    sentences = read_sentences(arguments.heldout)
    model = KneserNey(read_sentences(arguments.train), arguments.order)
    baseline, _, _ = perplexity(model, sentences)
    data = build(arguments, sequence_length(arguments))
    runs: dict[str, list[Run]] = {system: [] for system in SYSTEMS}
    for seed in range(arguments.seeds):
        for system, found in runs.items():
            found.append(train(arguments, data, system, seed))
            text = table(runs, arguments.order, baseline)
            files.write_text(os.path.join(arguments.output_dir, "table.md"), text + "\n")
            print(text, flush=True)


if __name__ == "__main__":
    main_with_clear_errors(main)(sys.argv)

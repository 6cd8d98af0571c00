"""Seconds of a fine-tuning epoch on real lengths of text: ours against Hugging Face's.

    python -m benchmarks.finetuning_epoch --data_dir GLUE --vocab vocab.txt

Both train a network of random weights on as many rows of the same lengths: ours in batches of
similar length, Hugging Face's in batches in random order and, where asked for, grouped by length;
both pad a batch to its longest row. Reading and tokenising come before and are not timed.
"""

from __future__ import annotations

import dataclasses
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from benchmarks import ours
from benchmarks.contest import Contestant, compete, ratio
from benchmarks.table import PRECISIONS, Report, cell
from data.vocabulary import Vocabulary
from errors import main_with_clear_errors
from model import named_size

_TASKS = flags.DEFINE_list("tasks", ["cola", "mrpc"], "As for run_finetuning.py.")
_DATA_DIR = flags.DEFINE_string("data_dir", None, "Likewise.", required=True)
_VOCAB = flags.DEFINE_string("vocab", None, "A vocab.txt or the folder of one.", required=True)
_SIZE = flags.DEFINE_string("size", "small", "Size of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Rows of a step.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Policy.")
_MAX_EXAMPLES = flags.DEFINE_integer("max_examples", 0, "The first so many rows; 0: all.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Measurements of each, in turns.")
CONTESTANTS = ("ConvBERT", "HF ConvBERT", "HF ConvBERT grouped")
REQUIRED, STRETCH = 1.3, 3.0


def main(argv: list[str]) -> None:
    """Prints a row per task."""
    report = Report(
        "task",
        "rows",
        "mean length",
        *(f"{name} s" for name in CONTESTANTS),
        *(f"{name} / ConvBERT" for name in CONTESTANTS[1:]),
    )
    vocabulary = Vocabulary.load(_VOCAB.value)
    fields = dataclasses.asdict(named_size(_SIZE.value).replace(vocab_size=vocabulary.size))
    for task in _TASKS.value:
        made, lengths = contestants(task, fields)
        results = compete(made, _ROUNDS.value)
        # Our epoch ends with its last full batch, theirs takes every row.
        whole = len(lengths) / results["ConvBERT"].facts["examples"]
        gains = [ratio(results[name], results["ConvBERT"]) / whole for name in CONTESTANTS[1:]]
        times = [results["ConvBERT"].median * whole]
        times += [results[name].median for name in CONTESTANTS[1:]]
        mean = f"{sum(lengths) / len(lengths):.1f}"
        report.row(task, f"{len(lengths):,}", mean, *map(cell, times), *map(cell, gains))
        report.missing(results)
        what = f"ConvBERT's speed over Hugging Face's with dynamic padding, {task}"
        report.target(f"{what}, required", gains[0], at_least=REQUIRED)
        report.target(f"{what}, hoped for", gains[0], at_least=STRETCH)
    report.end()


def contestants(task: str, fields: dict) -> tuple[list[Contestant], list[int]]:
    """Both sides, and the lengths of the rows."""
    described = {
        "fields": fields,
        "task": task,
        "data_dir": _DATA_DIR.value,
        "vocab": _VOCAB.value,
        "batch": _BATCH.value,
        "precision": _PRECISION.value,
        "max_examples": _MAX_EXAMPLES.value,
    }
    declared, rows, _ = ours.finetuning_rows(**described)
    others = {
        "fields": fields,
        "lengths": rows.lengths.tolist(),
        "batch": _BATCH.value,
        "precision": _PRECISION.value,
        "num_labels": len(declared.labels) or 1,  # regression has none
    }
    target = "benchmarks.huggingface:finetuning_epoch"
    made = [
        Contestant("ConvBERT", "benchmarks.ours:finetuning_epoch", described),
        Contestant("HF ConvBERT", target, others),
        Contestant("HF ConvBERT grouped", target, {**others, "group_by_length": True}),
    ]
    return made, others["lengths"]


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

"""Seconds of a fine-tuning epoch on real lengths of text: ours against Hugging Face's.

    python -m convbert.benchmarks.finetuning_epoch --data_dir GLUE --vocab vocab.txt

Both train a network of random weights on as many sequences of the same lengths: ours in batches of
similar length, Hugging Face's in random order; both pad a batch to its longest sequence. Reading
and tokenization come before and are not timed.
"""

from __future__ import annotations

import dataclasses

from absl import app, flags

from convbert.benchmarks import ours
from convbert.benchmarks.interleaved import System, measure, ratio
from convbert.benchmarks.table import PRECISIONS, Report
from convbert.common.errors import main_with_clear_errors
from convbert.common.settings import present
from convbert.data.vocabulary import Vocabulary
from convbert.model import named_size

_TASKS = flags.DEFINE_list("tasks", ["cola", "mrpc"], "Tasks of run_finetuning.py.")
_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder of the tasks' data.", required=True)
_VOCAB = flags.DEFINE_string("vocab", None, "A vocab.txt or the folder of one.", required=True)
_SIZE = flags.DEFINE_string("size", "small", "Size of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.")
_PRECISION = flags.DEFINE_enum("precision", "float32", PRECISIONS, "Compute dtype policy.")
_MAX_EXAMPLES = flags.DEFINE_integer("max_examples", None, "Number of training examples.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Interleaved runs of each system.", lower_bound=1)
SYSTEMS = ("ConvBERT", "HF ConvBERT")


def main(argv: list[str]) -> None:
    """Prints a row per task."""
    columns = {"task": "", "rows": ",d", "mean length": ".1f"}
    columns |= {f"{name} s": ".2f" for name in SYSTEMS}
    columns |= {f"{SYSTEMS[1]} / ConvBERT": ".2f"}
    report = Report(columns)
    vocabulary = Vocabulary.load(_VOCAB.value)
    fields = dataclasses.asdict(named_size(_SIZE.value).replace(vocab_size=vocabulary.size))
    for task in _TASKS.value:
        compared, lengths = systems(task, fields)
        results = measure(compared, _ROUNDS.value)
        own, peer = (results[name] for name in SYSTEMS)
        # Our epoch ends with its last full batch, theirs takes every sequence.
        whole = len(lengths) / own.facts["examples"]
        times = (own.median * whole, peer.median, ratio(peer, own) / whole)
        report.row(task, len(lengths), sum(lengths) / len(lengths), *times)
        report.missing(results)
    report.end()


def systems(task: str, fields: dict) -> tuple[list[System], list[int]]:
    """The systems, and the lengths of the sequences."""
    shared = {"fields": fields, "batch": _BATCH.value, "precision": _PRECISION.value}
    own = {"task": task, "data_dir": _DATA_DIR.value, "vocab": _VOCAB.value, **shared}
    own["max_examples"] = _MAX_EXAMPLES.value
    data = ours.finetuning_trial(**own)[0].data
    lengths = present(data.train).lengths.tolist()
    # Regression has no labels.
    peer = {**shared, "lengths": lengths, "num_labels": len(data.task.labels) or 1}
    targets = [f"convbert.benchmarks.{file}:finetuning_epoch" for file in ("ours", "huggingface")]
    return [System(*each) for each in zip(SYSTEMS, targets, (own, peer))], lengths


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

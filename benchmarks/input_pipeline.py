"""Examples per second that the input pipeline delivers, beside what a training step consumes.

    python -m benchmarks.input_pipeline --data_dir DATA

The pipeline reads, shuffles, parses and checks the records of --data_dir with no model behind it.
The step is that of the small ConvBERT without a pipeline, in turns with it.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from benchmarks.contest import Contestant, compete, ratio
from benchmarks.table import Report, cell
from data.input_pipeline import record_files
from errors import main_with_clear_errors

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of build_pretraining_data.py.", required=True
)
_SIZE = flags.DEFINE_string("size", "small", "Size of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence, as in the records.")
_BATCHES = flags.DEFINE_integer("batches", 500, "Batches read at a time.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Measurements of each, in turns.")
TIMES = 20  # target


def main(argv: list[str]) -> None:
    """Prints a row for the pipeline and one for the step."""
    report = Report("what", "examples/s")
    record_files(_DATA_DIR.value)  # refuses a folder without records before anything is started
    shape = {"batch": _BATCH.value, "length": _LENGTH.value}
    pipeline = {"data_dir": _DATA_DIR.value, "batches": _BATCHES.value, **shape}
    results = compete(
        [
            Contestant("pipeline", "benchmarks.ours:input_pipeline", pipeline),
            Contestant("step", "benchmarks.ours:pretraining_step", {"size": _SIZE.value, **shape}),
        ],
        _ROUNDS.value,
    )
    read = _BATCH.value * _BATCHES.value
    report.row("pipeline", cell(read / results["pipeline"].median, ",.0f"))
    report.row("training step", cell(_BATCH.value / results["step"].median, ",.1f"))
    times = ratio(results["step"], results["pipeline"]) * _BATCHES.value
    report.target("the pipeline's speed over the step's", times, at_least=TIMES)
    report.end()


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

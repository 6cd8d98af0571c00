"""Scores of exported forms of fine-tuned models on their first development splits.

    python -m benchmarks.variants --data_dir DATA --runs my_results/mrpc,my_results/cola

Each run, or of a folder of runs that of the highest score, is scored as in fine-tuning, by the
metrics of its task: as it is, in bfloat16, and as a LiteRT file of each kind of weights. The
scores are times 100; behind the first are the differences from it.
"""

from __future__ import annotations

import math
import os
import tempfile
import types
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import app, flags, logging

from benchmarks.table import Report
from errors import InputError, main_with_clear_errors
from finetune.kinds.predicted import Predicted
from finetune.predictor import predict
from finetune.task_data import Split, load_task_data
from serving import litert_export
from serving.litert import MODEL_FILE
from serving.litert_model import load_functions
from serving.load import ServedModel, load
from signatures.functions import PREDICT

_RUNS = flags.DEFINE_list("runs", None, "Runs of run_finetuning.py, or folders of runs.")
_DATA_DIR = flags.DEFINE_string("data_dir", "", "Folder of the tasks' files.")
_BATCH = flags.DEFINE_integer("batch", 32, "Batch size.", lower_bound=1)
flags.mark_flag_as_required("runs")


def main(argv: list[str]) -> None:
    """Prints a row for each run and metric."""
    logging.set_verbosity(logging.WARNING)
    columns = {"run": "", "metric": "", "examples": "d", "float32": ".2f", "bfloat16": "+.2f"}
    columns |= {f"LiteRT {weights}": "+.2f" for weights in litert_export.WEIGHTS}
    report, notes = Report(columns), []
    for run in _RUNS.value:
        model = load(run)
        if model.task is None or model.run is None:
            raise InputError(f"--runs: {run} should be a finished run of run_finetuning.py")
        split = _dev_split(model)
        first, *others = scores(model, split)
        for metric, value in first.items():
            differences = [_or_nan(other[metric]) - _or_nan(value) for other in others]
            report.row(run, metric, len(split.examples), _or_nan(value), *differences)
        notes.append(f"- {run}: {model.run['folder']}")
    report.end(*notes)


def scores(model: ServedModel, split: Split) -> Iterator[dict[str, float | None]]:
    """The scores of all forms, in the order of the columns."""
    yield score(model, split, model.objective.predict)
    folder = model.run["folder"]
    in_bfloat16 = load(folder, precision="mixed_bfloat16")
    yield score(in_bfloat16, split, in_bfloat16.objective.predict)
    for weights in litert_export.WEIGHTS:
        with tempfile.TemporaryDirectory() as work:
            output = os.path.join(work, weights)
            litert_export.export(model, output, folder, weights)
            functions = load_functions(os.path.join(output, MODEL_FILE))
            yield score(model, split, functions[PREDICT].compute)


def score(model: ServedModel, split: Split, answer: Callable) -> dict[str, float | None]:
    """The task's metrics, times 100, of what a function of features says of a split."""
    task, hparams = model.task, model.hparams
    objective = types.SimpleNamespace(predict=answer, head=model.objective.head)
    given = {"batch_size": _BATCH.value, "hparams": hparams}
    outputs = predict(objective, task, split, strategy=tf.distribute.get_strategy(), **given)
    answers = task.plugin.answers(task, split.examples, split.encoded, outputs, hparams)
    return task.plugin.score(Predicted(task, split.examples, answers, hparams, outputs))


def _dev_split(model: ServedModel) -> Split:
    given = {"cache_dir": None, "train": False, "test": False}
    data = load_task_data(model.task, _DATA_DIR.value, model.vocabulary, model.hparams, **given)
    return data.splits[model.task.dev[0]]


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))

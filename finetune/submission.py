"""The archive that the GLUE server scores: eleven files of "index<TAB>prediction".

The server (https://gluebenchmark.com/submit) rejects an archive in which a file is missing.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from common import storage
from common.errors import InputError, warn
from common.files import replacing
from finetune.declaration import TASKS
from finetune.kinds.predicted import read_predictions
from finetune.results import by_median, collapse, described, group_results, rank, read_results

ARCHIVE_FILE = "submission.zip"
# ZIP entries carry a time; a fixed one (the earliest there is) makes equal content equal bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


class ServerFile(NamedTuple):
    """A file of the archive."""

    name: str  # in the archive
    task: str  # of `finetune.declaration.TASKS`
    split: str  # of the task
    lines: int  # examples of the official test set
    # What fills the file where the task was not run: the most frequent label of the training set,
    # for STS-B the mean of its scores. MNLI's and QNLI's labels are equally common.
    filler: str


SERVER_FILES = (
    ServerFile("CoLA.tsv", "cola", "test", 1063, "1"),
    ServerFile("SST-2.tsv", "sst", "test", 1821, "1"),
    ServerFile("MRPC.tsv", "mrpc", "test", 1725, "1"),
    ServerFile("STS-B.tsv", "sts", "test", 1379, "2.701"),
    ServerFile("MNLI-m.tsv", "mnli", "test_matched", 9796, "entailment"),
    ServerFile("MNLI-mm.tsv", "mnli", "test_mismatched", 9847, "entailment"),
    ServerFile("QNLI.tsv", "qnli", "test", 5463, "entailment"),
    ServerFile("QQP.tsv", "qqp", "test", 390965, "0"),
    ServerFile("RTE.tsv", "rte", "test", 3000, "entailment"),
    ServerFile("WNLI.tsv", "wnli", "test", 146, "0"),
    ServerFile("AX.tsv", "mnli", "diagnostic", 1104, "entailment"),
)


def write_glue_archive(output_dir: str, *, fill_missing: bool = False) -> str:
    """Writes `submission.zip`, whose path it returns, and prints what its files are made from.

    Of each task the setting of highest median development score is taken, and of its runs the one
    of highest score that has predicted the test set. A collapsed run is taken only where every
    such run of the task is collapsed, and warned of. Runs from random weights are left out.
    Files of what was not run are left out, or with `fill_missing` hold the most frequent label.
    """
    tasks = {file.task for file in SERVER_FILES}
    results, _ = read_results(output_dir)
    runs = [run for run in results if run["init"] == "pretrained" and run["task"] in tasks]
    if len(models := sorted({run.get("model") or "" for run in runs})) > 1:
        raise InputError(
            f"{output_dir}: a submission should be of one model. Received: {', '.join(models)}"
        )
    groups = [sorted(g.results, key=rank, reverse=True) for g in by_median(group_results(runs))]
    runs = [run for group in groups for run in group]
    contents = {}
    for file in SERVER_FILES:
        own = [run for run in runs if run["task"] == file.task]
        own = [run for run in own if storage.exists(_predictions_file(file, run))]
        if own:
            contents[file.name] = _predicted(file, _chosen(file, own))
    missing = [file for file in SERVER_FILES if file.name not in contents]
    if not contents:
        raise InputError(f"{output_dir}: should hold a run with predictions/test.jsonl of GLUE")
    for file in missing if fill_missing else ():
        contents[file.name] = [file.filler] * file.lines
        print(f"{file.name}: FILLED with {file.filler!r}; its score means nothing")
    if missing and not fill_missing:
        names = ", ".join(file.name for file in missing)
        print(f"missing, and the server wants all {len(SERVER_FILES)} files: {names}")
    path = os.path.join(output_dir, ARCHIVE_FILE)
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for file in SERVER_FILES:
            if file.name in contents:
                entry = zipfile.ZipInfo(file.name, _NO_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                lines = [f"{i}\t{said}\n" for i, said in enumerate(contents[file.name])]
                archive.writestr(entry, "".join(["index\tprediction\n", *lines]))
    return path


def _chosen(file: ServerFile, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first run that is not collapsed, else the first; says which."""
    run = next((run for run in runs if not collapse(run)), runs[0])
    tell = warn if collapse(run) else print
    tell(f"{file.name}: {run['folder']}, the best of {len(runs)} runs, {described(run)}")
    return run


def _predictions_file(file: ServerFile, run: dict[str, Any]) -> str:
    return os.path.join(run["folder"], "predictions", f"{file.split}.jsonl")


def _predicted(file: ServerFile, run: dict[str, Any]) -> list[str]:
    """Returns a run's predictions in the server's format and order: labels, or scores in [0, 5]."""
    path = _predictions_file(file, run)
    rows = read_predictions(path)
    by_index = {str(row.get("id")): row["prediction"] for row in rows}
    found: list[Any] = [by_index.get(str(i)) for i in range(file.lines)]
    labels = TASKS[file.task].labels  # the server's names, too; STS-B's predictions are numbers
    fits = {*found} <= {*labels} if labels else all(isinstance(x, (int, float)) for x in found)
    if len(rows) != file.lines or not fits:
        raise InputError(
            f"{path}: should have {file.lines:,} predictions, as the official test set, with the"
            f" ids 0 to {file.lines - 1}, of {labels or 'numbers'}. Received: {len(rows):,} rows"
        )
    return found if labels else [f"{min(5.0, max(0.0, score)):.3f}" for score in found]

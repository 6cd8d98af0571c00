"""The archive that the GLUE server scores: eleven files of "index<TAB>prediction".

The server (https://gluebenchmark.com/submit) rejects an archive in which a file is missing.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import storage
from errors import InputError, warn
from files import replacing
from finetune import predictions
from finetune.results import (
    Group,
    by_median,
    collapse,
    group_results,
    headline,
    headline_score,
    rank,
    read_results,
)

ARCHIVE_FILE = "submission.zip"
# ZIP entries carry a time; a fixed one (the earliest there is) makes equal content equal bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)

_NUMBERS = ("0", "1")
_TWO_WAY = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")


class ServerFile(NamedTuple):
    """A file of the archive.

    Attributes:
        name: in the archive.
        task: of `finetune.glue`.
        split: of the task.
        lines: examples of the official test set.
        labels: the server's names; () for STS-B, whose predictions are numbers.
        filler: fills the file where the task was not run: the most frequent label of the training
            set, for STS-B the mean of its scores. MNLI's and QNLI's labels are equally common.
    """

    name: str
    task: str
    split: str
    lines: int
    labels: tuple[str, ...]
    filler: str


SERVER_FILES = (
    ServerFile("CoLA.tsv", "cola", "test", 1063, _NUMBERS, "1"),
    ServerFile("SST-2.tsv", "sst", "test", 1821, _NUMBERS, "1"),
    ServerFile("MRPC.tsv", "mrpc", "test", 1725, _NUMBERS, "1"),
    ServerFile("STS-B.tsv", "sts", "test", 1379, (), "2.701"),
    ServerFile("MNLI-m.tsv", "mnli", "test_matched", 9796, _THREE_WAY, "entailment"),
    ServerFile("MNLI-mm.tsv", "mnli", "test_mismatched", 9847, _THREE_WAY, "entailment"),
    ServerFile("QNLI.tsv", "qnli", "test", 5463, _TWO_WAY, "entailment"),
    ServerFile("QQP.tsv", "qqp", "test", 390965, _NUMBERS, "0"),
    ServerFile("RTE.tsv", "rte", "test", 3000, _TWO_WAY, "entailment"),
    ServerFile("WNLI.tsv", "wnli", "test", 146, _NUMBERS, "0"),
    ServerFile("AX.tsv", "mnli", "diagnostic", 1104, _THREE_WAY, "entailment"),
)


def write_glue_archive(output_dir: str, *, fill_missing: bool = False) -> str:
    """Writes `submission.zip`, whose path it returns, and prints what its files are made from.

    Of each task the setting of highest median development score is taken, and of its runs the one
    of highest score that has predicted the test set. A collapsed run is taken only where every
    such run of the task is collapsed, and warned of. Runs from random weights are left out.

    Args:
        output_dir: of run_finetuning.py.
        fill_missing: whether files of what was not run are filled with the most frequent label, for
            their score means nothing; else they are missing from the archive, and named.

    Raises:
        InputError: no test set of GLUE was predicted; a file of predictions is incomplete or not
            as it should be; the tasks' best runs are of more than one model.
    """
    results, unfinished = read_results(output_dir)
    pretrained = [result for result in results if result["init"] == "pretrained"]
    groups = _of_one_model(by_median(group_results(pretrained)))
    contents, missing = {}, []
    for file in SERVER_FILES:
        runs = _candidates([group for group in groups if group.task == file.task], file.split)
        if runs:
            contents[file.name] = _content(_predicted(file, _chosen(file, runs)))
        else:
            missing.append(file)
    if not contents:
        raise InputError(
            f"{output_dir}: should hold a run that predicted a test set of GLUE "
            f"(predictions/test.jsonl). Received: none"
        )
    for file in missing if fill_missing else ():
        contents[file.name] = _content([file.filler] * file.lines)
        print(f"{file.name}: FILLED with {file.filler!r}; its score means nothing")
    random = len(results) - len(pretrained)
    if random or unfinished:
        print(f"left out: {random} runs from random weights, {len(unfinished)} unfinished")
    if missing and not fill_missing:
        names = ", ".join(file.name for file in missing)
        print(f"missing, and the server wants all {len(SERVER_FILES)} files: {names}")
    path = os.path.join(output_dir, ARCHIVE_FILE)
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for file in SERVER_FILES:
            if file.name in contents:
                entry = zipfile.ZipInfo(file.name, _NO_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, contents[file.name])
    return path


def _of_one_model(groups: Sequence[Group]) -> list[Group]:
    groups = [group for group in groups if any(file.task == group.task for file in SERVER_FILES)]
    models = sorted({group.model or "" for group in groups})
    if len(models) > 1:
        raise InputError(
            f"A submission should be of one model; give the folder of one. Received: "
            f"{', '.join(models)}"
        )
    return groups


def _candidates(groups: Sequence[Group], split: str) -> list[dict[str, Any]]:
    """The runs that predicted the split: best setting first, in each the highest score first."""
    runs = [run for group in groups for run in sorted(group.results, key=rank, reverse=True)]
    return [run for run in runs if storage.exists(_predictions_file(run, split))]


def _chosen(file: ServerFile, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first run that is not collapsed, else the first; says which, and why."""
    run = next((run for run in runs if not collapse(run)), runs[0])
    score = headline_score(run)
    score = f"{' '.join(headline(run))} {'undefined' if score is None else f'{score:.1f}'}"
    print(f"{file.name}: {run['folder']} (trial {run['trial']}, {score}; {len(runs)} considered)")
    if collapse(run):
        warn(f"{file.name}: trial {run['trial']} is collapsed, {collapse(run)}, like all others")
    for better in runs[: runs.index(run)]:
        print(f"  not taken: {better['folder']} is collapsed, {collapse(better)}")
    return run


def _predictions_file(run: dict[str, Any], split: str) -> str:
    return os.path.join(run["folder"], "predictions", f"{split}.jsonl")


def _predicted(file: ServerFile, run: dict[str, Any]) -> list[str]:
    """What a run predicts, in the server's words and in the order of its indices."""
    path = _predictions_file(run, file.split)
    rows = predictions.read(path)
    if sorted(str(row.get("id")) for row in rows) != sorted(map(str, range(file.lines))):
        raise InputError(
            f"{path}: should predict the {file.lines:,} examples of the official test set, "
            f"with the ids 0 to {file.lines - 1}. Received: {len(rows):,} examples"
        )
    by_index = {int(row["id"]): row["prediction"] for row in rows}
    return [_server_word(file, by_index[i], path) for i in range(file.lines)]


def _server_word(file: ServerFile, prediction: Any, path: str) -> str:
    """A prediction in the server's words."""
    if file.labels and prediction in file.labels:
        return prediction
    if not file.labels and isinstance(prediction, (int, float)):
        return f"{min(5.0, max(0.0, prediction)):.3f}"
    wanted = f"among {', '.join(file.labels)}" if file.labels else "numbers"
    raise InputError(f"{path}: predictions should be {wanted}. Received: {prediction!r}")


def _content(predicted: Sequence[str]) -> str:
    rows = (f"{index}\t{prediction}\n" for index, prediction in enumerate(predicted))
    return "index\tprediction\n" + "".join(rows)

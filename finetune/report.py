"""The report of all runs of an output folder.

    report.md    a table of all settings beside published figures, and notes
    runs.csv     one row per run: its scores, setting and folder

A "collapsed" run, whose predictions are all or nearly all the same, counts in the statistics like
any other and is listed. An undefined score counts as 0.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from convbert.common.files import write_text
from convbert.finetune.declaration import GLUE_TASKS
from convbert.finetune.published import PUBLISHED_TASKS, published_rows
from convbert.finetune.results import collapse, headline, or_lowest, rank, read_results, summarize

REPORT_FILE = "report.md"
_COLUMNS = r"^(task|model.*|init|trial|seed|steps|seconds|folder|(setting|scores|collapsed).*)$"
_HEAD = """# Fine-tuning results

Scores are times 100, of each run of a setting; runs differ in their seeds alone. The setting of
highest median is bold. "Most frequent label" is the score of that one answer to all examples.
Published figures are of models of the same architecture and objective. Folders are below this one.

"""
# The papers' average: the eight tasks and metrics of Table II of the ALE report, except for STS-B:
# ELECTRA's Spearman correlation instead of Pearson's.
AVERAGED_METRICS = dict.fromkeys(GLUE_TASKS, "accuracy")
AVERAGED_METRICS |= {"cola": "matthews_corrcoef", "sts": "spearman"}


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """The runs of one setting of a task, which differ only in their seeds."""

    task: str
    model: str | None  # name of the model directory
    init: str  # "pretrained" or "random"
    setting: dict[str, Any]  # swept hyper-parameters
    results: tuple[dict[str, Any], ...]  # contents of `result.json`, by trial

    @property
    def headline(self) -> tuple[str, str]:
        """Returns the split and the metric of the headline score."""
        return headline(self.results[0])

    def scores(self, split: str, metric: str) -> list[float | None]:
        """Returns one score of every run that has it; None if undefined."""
        found = (result["scores"].get(split, {}) for result in self.results)
        return [scores[metric] for scores in found if metric in scores]

    @property
    def median(self) -> float | None:
        """Returns the median of the headline score, or None if no run has one."""
        return summarize(self.scores(*self.headline)).get("median")


def write_report(output_dir: str) -> str:
    """Writes the report of an output folder or a folder of these; returns `report.md`'s path."""
    results, unfinished = read_results(output_dir)
    for run in results:
        run["folder"] = os.path.relpath(run["folder"], output_dir)
    table = pd.json_normalize(results).filter(regex=_COLUMNS)
    write_text(os.path.join(output_dir, "runs.csv"), table.to_csv(index=False))
    path = os.path.join(output_dir, REPORT_FILE)
    unfinished = [os.path.relpath(folder, output_dir) for folder in unfinished]
    write_text(path, report_text(group_results(results), unfinished))
    return path


def summary_line(results: Iterable[dict[str, Any]]) -> str:
    """Summarizes results in a line: each task's headline score, and collapsed runs."""
    groups = group_results(results)
    parts = [
        f"{group.task} {_number(group.median)} ({group.headline[1]}, median of"
        f" {len(group.results)}{', random weights' * (group.init == 'random')})"
        for group in best_settings(groups)
    ]
    return "; ".join([*parts, *_collapsed(groups)])


def report_text(groups: Sequence[RunGroup], unfinished: Sequence[str] = ()) -> str:
    """Returns the report as Markdown; `unfinished` are folders of unfinished runs."""
    best = best_settings(groups)
    rows = [_cells(group, group in best) for group in groups]
    frame = pd.DataFrame(rows).replace(r"\|", r"\\|", regex=True).replace("", "-")
    lines = [f"not in here, as it is not finished: `{folder}`" for folder in unfinished]
    lines += _collapsed(groups)
    for model, init in dict.fromkeys((group.model, group.init) for group in best):
        own = [group for group in best if (group.model, group.init) == (model, init)]
        if (average := glue_average(own)) is not None:
            name = f"average of the eight GLUE tasks, {model or 'model'}, {init} weights"
            said = f"{name}: **{_number(average)}**, of medians"
            lines.append("; published: ".join([said, *_figures(own[0], "average")]))
    for group in best:
        run = max(group.results, key=rank)
        lines.append(f'best run of {group.task}, {group.init}: `convbert.load("{run["folder"]}")`')
    table = frame.to_markdown(index=False, disable_numparse=True)
    return f"{_HEAD}{table}\n\n" + "".join(f"- {line}\n" for line in lines)


def group_results(results: Iterable[dict[str, Any]]) -> list[RunGroup]:
    """Groups runs by task, model, init and setting; GLUE's tasks first, in the usual order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in sorted(results, key=lambda result: result["trial"]):
        key = [result.get(name) for name in ("task", "model", "init", "setting")]
        groups.setdefault(json.dumps(key), []).append(result)
    found = []
    for name, runs in groups.items():
        task, model, init, setting = json.loads(name)
        found.append(RunGroup(task, model, init, setting, tuple(runs)))
    order = {task: index for index, task in enumerate(GLUE_TASKS)}
    found.sort(key=lambda g: (order.get(g.task, len(order)), g.task, g.model or "", g.init))
    return found


def best_settings(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Returns for each task, model and init the setting with the highest headline median.

    The papers choose in this way. Ties go to the first setting.
    """
    best: dict[tuple, RunGroup] = {}
    for group in groups:
        known = best.setdefault((group.task, group.model, group.init), group)
        if or_lowest(group.median) > or_lowest(known.median):
            best[group.task, group.model, group.init] = group
    return [group for group in groups if group in best.values()]


def glue_average(best: Sequence[RunGroup]) -> float | None:
    """Returns the average of the eight tasks' medians, or None if one is missing or undefined.

    `best` has one group per task, of one model and init.
    """
    scores = {}
    for group in best:
        if group.task in AVERAGED_METRICS:
            found = group.scores(group.headline[0], AVERAGED_METRICS[group.task])
            scores[group.task] = summarize(found or [None]).get("median")
    complete = all(scores.get(task) is not None for task in GLUE_TASKS)
    return float(np.mean(list(scores.values()))) if complete else None


def _cells(group: RunGroup, best: bool) -> dict[str, str]:
    """Returns a group's row of the table."""
    summary, bold = summarize(group.scores(*group.headline)), "**" if best else ""
    error = f" ± {summary['standard_error']:.1f}" if "standard_error" in summary else ""
    median, mean, top, worst = (
        _number(summary.get(name)) for name in ("median", "mean", "best", "worst")
    )
    setting = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in group.setting.items()
    )
    others = [
        f"{split} {metric} {_number(summarize(group.scores(split, metric)).get('median'))}"
        for split, scores in group.results[0]["scores"].items()
        for metric in scores
        if (split, metric) != group.headline
    ]
    baseline = group.results[0].get("baselines", {}).get(group.headline[0])
    return {
        "task": group.task,
        "score": " ".join(group.headline),
        "weights": f"{group.model or 'model'}, {group.init}",
        "setting": f"{bold}{setting}{bold}",
        "runs": str(len(group.results)),
        "median": f"{bold}{median}{bold}",
        "mean": mean + error,
        "best": top,
        "worst": worst,
        "most frequent label": "" if baseline is None else _number(baseline),
        "other medians": ", ".join(others),
        "published": "; ".join(_figures(group, group.task)) if best else "",
    }


def _figures(group: RunGroup, task: str) -> Iterator[str]:
    """Yields published figures of a task, or of "average", for a group's architecture."""
    for row in published_rows(group.results[0]):
        if task in row.scores:
            error = f" ± {row.errors[task]:g}" if task in row.errors else ""
            about = (row.metrics.get(task), row.statistic, row.pretraining, row.source)
            yield f"{row.scores[task]:g}{error} ({', '.join(filter(None, about))})"
    for line in PUBLISHED_TASKS:  # other models, maybe on other splits
        if line["task"] == task:
            yield f"{line['model']} {line['score']} ({line['statistic']}, {line['source']})"


def _collapsed(groups: Sequence[RunGroup]) -> Iterator[str]:
    """Yields a line about collapsed runs, if any."""
    runs = [run for group in groups for run in group.results]
    if found := [
        f"{run['task']} trial {run['trial']}{' from random weights' * (run['init'] == 'random')} "
        f"({collapse(run)})"
        for run in runs
        if collapse(run)
    ]:
        yield f"{len(found)} of {len(runs)} runs collapsed: {', '.join(found)}"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value + 0.0:.1f}".replace("-0.0", "0.0")

"""The report of all runs of an output folder.

    report.md    a table of all settings beside baselines and published figures, and what to know
    runs.csv     one row per run: its scores, setting and folder

A run whose predictions are all, or all but a few, the same ("collapsed") counts in the statistics
like any other, and is named. So does one whose score is undefined, as 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from common.files import write_text
from finetune.published import PUBLISHED_TASKS, published_rows
from finetune.results import (
    RunGroup,
    best_settings,
    collapse,
    glue_average,
    group_results,
    rank,
    read_results,
    summarize,
)

REPORT_FILE = "report.md"
_COLUMNS = r"^(task|model.*|init|trial|seed|steps|seconds|folder|(setting|scores|coll|undef).*)$"
_PUBLISHED = ("task", "score", "ours", "published", "statistic", "pre-training", "source")
_HEAD = """# Fine-tuning results

Scores are times 100, of each run of a setting; runs differ in their seeds alone. The setting of
highest median is bold. A baseline answers without learning. A score is "not clearly above" it where
the 95 % bootstrap interval of its lead reaches 0. Published figures are of models of the same
architecture and objective, each beside ours by its statistic.

"""


def write_report(output_dir: str) -> str:
    """Writes the report of an output folder, or of a folder of such; the path of `report.md`."""
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
    """One line, from contents of `result.json`: each task's headline score, and what collapsed."""
    groups, parts = group_results(results), []
    for group in best_settings(groups):
        details = f"{group.headline[1]}, median of {len(group.results)}"
        details += f"{', random weights' * (group.init == 'random')}; {compare(group)}"
        parts.append(f"{group.task} {_number(group.median)} ({details.rstrip('; ')})")
    return "; ".join([*parts, *_warnings(groups)])


def report_text(groups: Sequence[RunGroup], unfinished: Sequence[str] = ()) -> str:
    """The report as Markdown; `unfinished` are folders of runs that are not finished."""
    best = best_settings(groups)
    models: dict[tuple[str | None, str], list[RunGroup]] = {}
    for group in best:
        models.setdefault((group.model, group.init), []).append(group)
    lines = [f"not in here, as it is not finished: `{folder}`" for folder in unfinished]
    lines += _warnings(groups)
    for (model, init), own in models.items():
        if (average := glue_average(own)) is not None:
            name = f"average of the eight GLUE tasks, {model or 'model'}, {init} weights"
            lines.append(f"{name}: **{_number(average)}**, of medians")
    for row in PUBLISHED_TASKS:  # of other models, on data that may be divided in another way
        if row["task"] in {group.task for group in best}:
            lines.append(f"published figure: {', '.join(row.values())}")
    for group in best:
        run = max(group.results, key=rank)
        lines.append(f'best run of {group.task}, {group.init}: `convbert.load("{run["folder"]}")`')
    tables = [[_cells(group, group in best) for group in groups]]
    tables += [[*_published(own)] for own in models.values()]
    parts = [_markdown(rows) for rows in tables if rows]
    return _HEAD + "\n\n".join([*parts, "\n".join(f"- {line}" for line in lines)]) + "\n"


def _markdown(rows: Sequence[dict[str, str]]) -> str:
    frame = pd.DataFrame(rows).replace(r"\|", r"\\|", regex=True).replace("", "-")
    return frame.to_markdown(index=False, disable_numparse=True)


def _cells(group: RunGroup, best: bool) -> dict[str, str]:
    """A group's row of the table."""
    summary, bold = summarize(group.scores(*group.headline)), "**" if best else ""
    error = f" ± {summary['standard_error']:.1f}" if "standard_error" in summary else ""
    median, mean, top, worst = (
        _number(summary.get(name)) for name in ("median", "mean", "best", "worst")
    )
    setting = ", ".join(
        f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}"
        for name, value in group.setting.items()
    )
    others = [
        f"{split} {metric} {_number(summarize(group.scores(split, metric)).get('median'))}"
        for split, scores in group.results[0]["scores"].items()
        for metric in scores
        if (split, metric) != group.headline
    ]
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
        "baseline": compare(group),
        "other medians": ", ".join(others),
    }


def compare(group: RunGroup) -> str:
    """The baseline and its score, and whether a group is not clearly above it; "" without one.

    The lead is the median of the runs' intervals.
    """
    split, metric = group.headline
    each = ((result.get("baselines") or {}).get(split) for result in group.results)
    found = [item for item in each if item]
    if not found:
        return ""
    leads = np.median([item["lead"][0] for item in found]) > 0 or group.median is None
    score = found[0]["scores"][metric]
    told = "undefined, so 0" if score is None else f"{score:.1f}"
    return f"{'' if leads else 'not clearly above '}{found[0]['name']} {told}"


def _warnings(groups: Sequence[RunGroup]) -> Iterator[str]:
    """Returns the warnings about the scores, for the report and the summary line."""
    runs = [(group, run) for group in groups for run in group.results]
    if collapsed := [
        f"{group.task} trial {run['trial']}{' from random weights' * (group.init == 'random')} "
        f"({collapse(run)})"
        for group, run in runs
        if collapse(run)
    ]:
        yield f"{len(collapsed)} of {len(runs)} runs collapsed: {', '.join(collapsed)}"
    reasons = [
        f"{group.task} {split} {', '.join(undefined)}: {next(iter(undefined.values()))}"
        for group, run in runs
        for split, undefined in run.get("undefined", {}).items()
    ]
    if reasons:
        yield f"undefined scores: {'; '.join(dict.fromkeys(reasons))}"
    if single := [group.task for group in best_settings(groups) if len(group.results) == 1]:
        names = ", ".join(dict.fromkeys(single))
        yield f"one trial decides nothing, use --num_trials: {names}"


def _published(best: Sequence[RunGroup]) -> Iterator[dict[str, str]]:
    """Published figures of the architecture of a model, each beside ours by its statistic."""
    groups = {group.task: group for group in best}
    for row in published_rows(best[0].results[0]):
        statistic = row.statistic.split(" ")[0] or "median"
        for task, figure in row.scores.items():
            metric, ours = "", None
            if task == "average":
                ours = glue_average(best, statistic, row.metrics)
            elif group := groups.get(task):
                split, metric = group.headline
                metric = row.metrics.get(task, metric)
                ours = summarize(group.scores(split, metric) or [None]).get(statistic)
            if ours is not None:
                error = f" ± {row.errors[task]:g}" if task in row.errors else ""
                cells = (task, metric, _number(ours), f"{figure:g}{error}", row.statistic)
                yield dict(zip(_PUBLISHED, (*cells, row.pretraining, row.source)))


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value + 0.0:.1f}".replace("-0.0", "0.0")

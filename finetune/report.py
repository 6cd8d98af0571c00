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

from files import write_text
from finetune.baselines import compare
from finetune.published import PUBLISHED_TASKS, Published, published_rows
from finetune.results import (
    Group,
    best_settings,
    collapse,
    glue_average,
    group_results,
    rank,
    read_results,
    undefined,
)

REPORT_FILE = "report.md"
_COLUMNS = r"^(task|model.*|init|trial|seed|steps|seconds|folder|(setting|scores|coll|undef).*)$"
_HEAD = """# Fine-tuning results

Scores are times 100, of each run of a setting; runs differ in their seeds alone. The setting of
highest median is bold. A baseline answers without learning. A score is "not clearly above" it where
the 95 % bootstrap interval of its lead reaches 0. Published figures are of models of the same
architecture and objective, by the statistic and the pre-training that the note says.

"""


def write_report(output_dir: str) -> str:
    """Writes the report of an output folder, or of a folder of such; the path of `report.md`.

    Raises:
        InputError: there is no finished run, or a file cannot be written.
    """
    import pandas

    results, unfinished = read_results(output_dir)
    for run in results:
        run["folder"] = os.path.relpath(run["folder"], output_dir)
    table = pandas.json_normalize(results).filter(regex=_COLUMNS)
    write_text(os.path.join(output_dir, "runs.csv"), table.to_csv(index=False))
    path = os.path.join(output_dir, REPORT_FILE)
    unfinished = [os.path.relpath(folder, output_dir) for folder in unfinished]
    write_text(path, report_text(group_results(results), unfinished))
    return path


def summary_line(results: Iterable[dict[str, Any]]) -> str:
    """One line, from contents of `result.json`: each task's headline score, and what collapsed."""
    groups = group_results(results)
    best, parts = best_settings(groups), []
    for group in best:
        details = f"{group.metric}, median of {len(group.results)}"
        details += f"{', random weights' * (group.init == 'random')}; {compare(group) or ''}"
        parts.append(f"{group.task} {_number(group.headline.median)} ({details.rstrip('; ')})")
    averages = [line.replace("**", "") for line in _averages(best, {}) if "**" in line]
    return "; ".join([*parts, *averages, *_warnings(groups)])


def report_text(groups: Sequence[Group], unfinished: Sequence[str] = ()) -> str:
    """The report as Markdown; `unfinished` are folders of runs that are not finished."""
    import pandas

    best, sources = best_settings(groups), {}
    rows = [_cells(group, group in best, sources) for group in groups]
    frame = pandas.DataFrame(rows).replace(r"\|", r"\\|", regex=True)
    lines = [f"not in here, as it is not finished: `{folder}`" for folder in unfinished]
    lines += [*_warnings(groups), *_averages(best, sources)]
    for row in PUBLISHED_TASKS:  # of other models, on data that may be divided in another way
        if row["task"] in {group.task for group in best}:
            lines.append(f"published figure: {', '.join(row.values())}")
    for group in best:
        run = max(group.results, key=rank)
        lines.append(f'best run of {group.task}, {group.init}: `convbert.load("{run["folder"]}")`')
    notes = [f"[{mark}] {source}" for source, mark in sources.items()]
    parts = [frame.to_markdown(index=False, disable_numparse=True)]
    parts += ["\n".join(f"- {line}" for line in lines), *notes]
    return _HEAD + "\n\n".join(parts) + "\n"


def _cells(group: Group, best: bool, sources: dict[str, int]) -> dict[str, str]:
    """A group's row of the table; `sources` are marks of published figures, which grow."""
    summary, error = group.headline, group.headline.standard_error
    setting = ", ".join(
        f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}"
        for name, value in group.setting.items()
    )
    others = [
        f"{split} {metric} {_number(group.summary(split, metric).median)}"
        for split, metric in group.scored()[1:]
    ]
    published = [
        f"{_figure(row, group.task, sources)} {row.metrics.get(group.task, '')}".strip()
        for row in published_rows(group.results[0])
        if group.task in row.scores
    ]
    return {
        "task": group.task,
        "score": f"{group.split} {group.metric}",
        "weights": f"{group.model or 'model'}, {group.init}",
        "setting": f"**{setting}**" if best else setting,
        "runs": str(summary.runs),
        "median": f"**{_number(summary.median)}**" if best else _number(summary.median),
        "mean": _number(summary.mean) + ("" if error is None else f" ± {error:.1f}"),
        "best": _number(summary.best),
        "worst": _number(summary.worst),
        "baseline": str(compare(group) or "-"),
        "published": ", ".join(published) or "-",
        "other medians": ", ".join(others) or "-",
    }


def _warnings(groups: Sequence[Group]) -> Iterator[str]:
    """Returns the warnings about the scores, for the report and the summary line."""
    runs = [(group, run) for group in groups for run in group.results]
    if collapsed := [
        f"{group.task} trial {run['trial']}{' from random weights' * (group.init == 'random')} "
        f"({collapse(run)})"
        for group, run in runs
        if collapse(run)
    ]:
        yield f"{len(collapsed)} of {len(runs)} runs collapsed: {', '.join(collapsed)}"
    if reasons := [f"{group.task} {undefined(run)}" for group, run in runs if undefined(run)]:
        yield f"undefined scores: {'; '.join(dict.fromkeys(reasons))}"
    if single := [group.task for group in best_settings(groups) if len(group.results) == 1]:
        names = ", ".join(dict.fromkeys(single))
        yield f"one trial decides nothing, use --num_trials: {names}"


def _averages(best: Sequence[Group], sources: dict[str, int]) -> Iterator[str]:
    """The averages of the eight GLUE tasks, each published one beside ours by its statistic."""
    for model, init in dict.fromkeys((group.model, group.init) for group in best):
        mine = [group for group in best if (group.model, group.init) == (model, init)]
        if (average := glue_average(mine)) is None:
            continue
        name = f"average of the eight GLUE tasks, {model or 'model'}, {init} weights"
        yield f"{name}: **{_number(average)}**, of medians"
        for row in published_rows(mine[0].results[0]):
            if "average" in row.scores:
                statistic = row.statistic.split(" ")[0] or "median"
                ours = _number(glue_average(mine, statistic, row.metrics))
                figure = _figure(row, "average", sources)
                yield f"{ours} is the average by the {statistic}, published {figure}"


def _figure(row: Published, task: str, sources: dict[str, int]) -> str:
    told = "; ".join(filter(None, (row.statistic, row.pretraining)))
    mark = sources.setdefault(f"{row.source} ({told})", len(sources) + 1)
    error = f" ± {row.errors[task]:g}" if task in row.errors else ""
    return f"{row.scores[task]:g}{error} [{mark}]"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value + 0.0:.1f}".replace("-0.0", "0.0")

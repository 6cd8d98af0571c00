"""The report of all runs of an output folder.

    report.md    a table of all settings beside baselines and published figures, and what to know
    runs.csv     one row per run: its scores, setting and folder

A run whose predictions are all but all the same ("collapsed") counts in the statistics like any
other, and is named. So does one whose score is undefined, as 0; where that of every run is, so are
they.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from files import write_text
from finetune.baselines import compare
from finetune.glue import GLUE_TASKS
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
_COLUMNS = (
    r"^(task|model|model_size|init|trial|seed|steps|seconds|folder)$|^(setting|scores)\.|^coll"
)
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
    text = table.to_csv(index=False, lineterminator="\n")
    write_text(os.path.join(output_dir, "runs.csv"), text)
    path = os.path.join(output_dir, REPORT_FILE)
    unfinished = [os.path.relpath(folder, output_dir) for folder in unfinished]
    write_text(path, report_text(group_results(results), unfinished))
    return path


def summary_line(results: Iterable[dict[str, Any]]) -> str:
    """One line, from contents of `result.json`: each task's headline score, and what collapsed."""
    groups = group_results(results)
    best, parts = best_settings(groups), []
    for group in best:
        found = compare(group)
        parts.append(
            f"{group.task} {_number(group.headline.median)} ({group.metric}, median of "
            f"{_count(group.results, 'run')}{', random weights' * (group.init == 'random')}"
            + (f"; {found})" if found else ")")
        )
    if len(_by_model(best)) == 1 and (average := glue_average(best)) is not None:
        parts.append(f"average of the eight tasks {_number(average)}")
    return "; ".join([*parts, *_warnings(groups)])


def report_text(groups: Sequence[Group], unfinished: Sequence[str] = ()) -> str:
    """The report as Markdown; `unfinished` are folders of runs that are not finished."""
    import pandas

    best, sources = best_settings(groups), {}
    rows = [_cells(group, group in best, sources) for group in groups]
    frame = pandas.DataFrame(rows).replace(r"\|", r"\\|", regex=True)
    lines = [f"not in here, as it is not finished: `{folder}`" for folder in unfinished]
    lines += [*_warnings(groups), *_averages(best, sources), *_other_models(best)]
    for group in best:
        run = max(group.results, key=rank)
        lines.append(f'best run of {group.task}: `convbert.load("{run["folder"]}")`')
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
        f"{_figure(row, group.task)} [{_mark(row, sources)}] {row.metrics.get(group.task, '')}"
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
        "published": ", ".join(text.strip() for text in published) or "-",
        "other medians": ", ".join(others) or "-",
    }


def _warnings(groups: Sequence[Group]) -> Iterator[str]:
    """What speaks against the scores, for both the report and the line."""
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
    for (model, init), mine in _by_model(best).items():
        name = f"average of the eight GLUE tasks, {model or 'model'}, {init} weights"
        missing = {*GLUE_TASKS} - {group.task for group in mine}
        average = glue_average(mine)
        if average is not None:
            yield f"{name}: **{_number(average)}**, of medians"
        elif len(missing) < len(GLUE_TASKS):
            yield f"{name}: not given, without {', '.join(sorted(missing)) or 'a defined score'}"
        for row in published_rows(mine[0].results[0]) if average is not None else ():
            if "average" in row.scores:
                statistic = row.statistic.split(" ")[0] or "median"
                ours = _number(glue_average(mine, statistic, row.metrics))
                figure = f"{_figure(row, 'average')} [{_mark(row, sources)}]"
                yield f"  - of the {statistic} scores: {ours}, published {figure}"


def _other_models(best: Sequence[Group]) -> Iterator[str]:
    """Published figures of these tasks, on data that may be divided in another way."""
    for row in PUBLISHED_TASKS:
        if row["task"] in {group.task for group in best}:
            names = ("metric", "split", "statistic", "source", "note")
            about = "; ".join(row[name] for name in names)
            yield f"{row['task']}: published of {row['model']} {row['score']} ({about})"


def _figure(row: Published, task: str) -> str:
    error = row.errors.get(task)
    return f"{row.scores[task]:g}" + ("" if error is None else f" ± {error:g}")


def _mark(row: Published, sources: dict[str, int]) -> int:
    told = "; ".join(filter(None, (row.statistic, row.pretraining)))
    return sources.setdefault(f"{row.source} ({told})", len(sources) + 1)


def _by_model(groups: Sequence[Group]) -> dict[tuple, list[Group]]:
    """(model, init) -> its groups."""
    found: dict[tuple, list[Group]] = {}
    for group in groups:
        found.setdefault((group.model, group.init), []).append(group)
    return found


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value + 0.0:.1f}".replace("-0.0", "0.0")


def _count(items: Sequence, noun: str) -> str:
    return f"{len(items):,} {noun}{'s' * (len(items) != 1)}"

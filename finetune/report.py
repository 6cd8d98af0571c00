"""The report of all runs of an output folder: Markdown, CSV and a picture.

    report.md    tables: best setting of each task, baselines, the eight-task average, pre-trained
                 against random weights, collapsed runs, all settings, other scores
    report.csv   statistics of every setting, split and metric
    runs.csv     one row per run
    report.png   per task the runs as points, their median, the published figure

A run whose predictions are all the same ("collapsed") counts in the statistics like any other, and
is named. So does one whose score is undefined, as 0; where that of every run is, so are they.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from files import write_text
from finetune import baselines, pictures
from finetune.glue import GLUE_TASKS
from finetune.published import PUBLISHED_TASKS, Published, published_rows, published_score
from finetune.results import (
    AVERAGED_METRICS,
    Group,
    Summary,
    best_settings,
    collapse,
    glue_average,
    group_results,
    read_results,
    undefined,
)

if TYPE_CHECKING:
    import pandas

REPORT_FILE = "report.md"
_SETTING_NAMES = {
    "learning_rate": "learning rate",
    "weight_decay_rate": "weight decay",
    "num_train_epochs": "epochs",
}


def write_report(output_dir: str) -> str:
    """Writes the report of an output folder, or of a folder of such; the path of `report.md`.

    Raises:
        InputError: there is no finished run, or a file cannot be written.
    """
    results, unfinished = read_results(output_dir)
    groups = group_results(results)
    unfinished = [os.path.relpath(folder, output_dir) for folder in unfinished]
    columns = [_run_column(group) for group in best_settings(groups)]
    pictures.runs_per_task(os.path.join(output_dir, "report.png"), columns)
    tables = {"runs.csv": _run_table(groups, output_dir), "report.csv": _score_table(groups)}
    for name, table in tables.items():
        text = table.to_csv(index=False, lineterminator="\n")
        write_text(os.path.join(output_dir, name), text)
    path = os.path.join(output_dir, REPORT_FILE)
    write_text(path, report_text(groups, unfinished))
    return path


def summary_line(results: Iterable[dict[str, Any]]) -> str:
    """One line, from contents of `result.json`: each task's headline score, and what collapsed."""
    groups = group_results(results)
    best, runs = best_settings(groups), _runs(groups)
    parts = []
    for group in best:
        headline, found = group.headline, baselines.compare(group, group.split, group.metric)
        details = ("median of " if headline.runs > 1 else "") + _count(headline.runs, "run")
        details += ", random weights" if group.init == "random" else ""
        details += f"; {found.words()}" if found else ""
        parts.append(f"{group.task} {_number(headline.median)} ({group.metric}, {details})")
    average, _ = glue_average(best)
    if average is not None and len(_by_model(best)) == 1:
        parts.append(f"average of the eight tasks {_number(average)}")
    if names := [
        f"{group.task} trial {run['trial']}{' from random weights' * (group.init == 'random')}"
        for group, run in runs
        if run.get("collapsed")
    ]:
        parts.append(f"{len(names)} of {len(runs)} runs collapsed: {', '.join(names)}")
    if reasons := [f"{group.task} {why}" for group, run in runs for why in undefined(run)]:
        parts.append(f"undefined scores: {'; '.join(dict.fromkeys(reasons))}")
    if single := baselines.single_trials(best):
        parts.append(f"one trial decides nothing, use --num_trials: {', '.join(single)}")
    return "; ".join(parts) or "no runs"


def report_text(groups: Sequence[Group], unfinished: Sequence[str] = ()) -> str:
    """The report as Markdown; `unfinished` are folders of runs that are not finished."""
    best = best_settings(groups)
    runs = _count(len(_runs(groups)), "finished run")
    tasks = _count(len({group.task for group in groups}), "task")
    listing = ", ".join(f"`{folder}`" for folder in unfinished)
    single = ", ".join(baselines.single_trials(best))
    sections = [
        "# Fine-tuning results",
        f"{runs} of {tasks}. Scores are times 100. Median, mean, standard error of the mean, best "
        "and worst are over the runs of a setting, which differ in their seeds alone.",
        listing and f"**Not in here:** {_count(len(unfinished), 'unfinished run')}: {listing}.",
        "![scores](report.png)",
        _best_section(best),
        single
        and f"**One trial decides nothing** ({single}): the seed alone moves a score, often "
        "by more than the difference in question. More runs: `--num_trials`.",
        baselines.section(best),
        _average_section(best),
        _tasks_section(best),
        _comparison_section(best),
        _collapsed_section(groups),
        _undefined_section(groups),
    ]
    if len(groups) > len(best):
        rows = [_cells(group, group.split, group.metric) for group in groups]
        for group, row in zip(groups, rows):
            row["setting"] += " (best)" * (group in best)
        sections.append(_section("All settings", "", _markdown(rows)))
    others = [_cells(group, *pair) for group in best for pair in group.scored()[1:]]
    for row in others:  # those of the setting, which the first table has
        del row["setting"], row["collapsed"]
    sections.append(_section("Other scores of the best settings", "", _markdown(others)))
    return "\n\n".join(filter(None, sections)) + "\n"


# ---------------------------------------------------------------- sections of report.md


def _best_section(best: Sequence[Group]) -> str:
    rows, sources = [], {}
    for group in best:
        found = _published(group)
        published = "-"
        if found:
            score, row = found
            mark = sources.setdefault(_source(row), len(sources) + 1)
            metric = row.metrics.get(group.task)
            published = f"{_number(score)} [{mark}]" + (f" ({metric})" if metric else "")
        rows.append({**_cells(group, group.split, group.metric), "published": published})
    text = "Chosen by the median of the score on the split named."
    if sources:
        text += (
            " Published figures are of the same architecture, pre-trained as the note says, in the "
            "task's score unless another is named."
        )
    notes = [f"[{mark}] {source}" for source, mark in sources.items()]
    return _section("Best setting of each task", text, "\n\n".join([_markdown(rows), *notes]))


def _average_section(best: Sequence[Group]) -> str:
    lines = []
    for (model, size, init), mine in _by_model(best).items():
        run = {group.task for group in mine}
        if run.isdisjoint(GLUE_TASKS):
            continue
        average, missing = glue_average(mine)
        told = f"**{_number(average)}**"
        if average is None:
            without = ", ".join(task for task in missing if task not in run)
            reasons = [f"{without} not run"] if without else []
            reasons += [f"{task} undefined" for task in missing if task in run]
            told = f"not given, {'; '.join(reasons)}"
        lines.append(f"- {model or 'model'}, {init} weights: {told}")
        for row in published_rows(size) if init == "pretrained" else ():
            lines.append(f"  - published: {_number(row.average)}, {_source(row)}")
    metrics = ", ".join(f"{task} {m}" for task, m in AVERAGED_METRICS.items() if m != "accuracy")
    text = f"Of the medians above, as the papers do it: {metrics}, the others accuracy (mnli"
    text += " matched; wnli left out)."
    return _section("Average of the eight GLUE tasks", text, "\n".join(lines))


def _tasks_section(best: Sequence[Group]) -> str:
    run = {group.task for group in best}
    lines = [
        f"- {row.task}: {row.model} {row.score:g} ({row.metric}, {row.split}, "
        f"{row.statistic}; {row.source}; {row.note})"
        for row in PUBLISHED_TASKS
        if row.task in run
    ]
    text = "Of other models, on data that may be divided in another way."
    return _section("Published figures of these tasks", text, "\n".join(lines))


def _comparison_section(best: Sequence[Group]) -> str:
    random = {(g.task, g.model, g.model_size): g.headline for g in best if g.init == "random"}
    rows = []
    for group in best:
        ours, theirs = group.headline, random.get((group.task, group.model, group.model_size))
        if group.init != "pretrained" or theirs is None or None in (ours.median, theirs.median):
            continue
        rows.append(
            {
                "task": group.task,
                "score": f"{group.split} {group.metric}",
                "random weights": _spread(theirs),
                "pre-trained": _spread(ours),
                "gain": f"{ours.median - theirs.median:+.1f}",
                "every run better": "yes" if ours.worst > theirs.best else "no",
            }
        )
    clear = sum(row["every run better"] == "yes" for row in rows)
    text = (
        "Median (worst to best of n runs), best setting of each. The last column says whether the "
        "worst pre-trained run beats the best one from random weights: so in "
        f"{clear} of {len(rows)}."
    )
    return _section("Pre-trained against random weights", text, _markdown(rows))


def _collapsed_section(groups: Sequence[Group]) -> str:
    lines = [
        f"- {_described(group)}, trial {run['trial']} (seed {run.get('seed', 'unknown')}): "
        f"{collapse(run)}"
        for group, run in _runs(groups)
        if run.get("collapsed")
    ]
    text = (
        "These give the same prediction for every example. They are counted in all figures above."
    )
    return _section("Collapsed runs", text, "\n".join(lines))


def _undefined_section(groups: Sequence[Group]) -> str:
    runs = _runs(groups)
    reasons = collections.Counter(
        f"{_described(group)}: {why}" for group, run in runs for why in undefined(run)
    )
    lines = [f"- {reason}, {_count(number, 'run')}" for reason, number in reasons.items()]
    text = "The correlation with a constant is undefined. Such a run counts as 0 beside runs that"
    return _section("Undefined scores", text + " have a score.", "\n".join(lines))


# ---------------------------------------------------------------- parts of sections


def _section(title: str, text: str, body: str) -> str:
    """A section of Markdown; "" where there is nothing in it."""
    return "\n\n".join(filter(None, (f"## {title}", text, body))) if body else ""


def _markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of equal columns as a table in Markdown."""
    import pandas

    frame = pandas.DataFrame(rows).replace(r"\|", r"\\|", regex=True)
    return frame.to_markdown(index=False, disable_numparse=True) if rows else ""


def _cells(group: Group, split: str, metric: str) -> dict[str, str]:
    """A row of a table: one score of a group."""
    summary, found = group.summary(split, metric), baselines.compare(group, split, metric)
    error = summary.standard_error
    return {
        "task": group.task,
        "score": f"{split} {metric}",
        "model": group.model or "-",
        "weights": group.init,
        "setting": _setting(group),
        "runs": str(summary.runs),
        "median": f"**{_number(summary.median)}**",
        "mean": _number(summary.mean),
        "std. error": "-" if error is None else _number(error),
        "best": _number(summary.best),
        "worst": _number(summary.worst),
        "collapsed": str(len(group.collapsed) or "-"),
        "baseline": found.cell() if found else "-",
    }


def _spread(summary: Summary) -> str:
    spread = f"{_number(summary.worst)} to {_number(summary.best)}, n = {summary.runs}"
    return f"{_number(summary.median)} ({spread})"


def _setting(group: Group) -> str:
    return ", ".join(
        f"{_SETTING_NAMES.get(name, name)} {value:g}"
        if isinstance(value, (int, float))
        else f"{name} {value}"
        for name, value in group.setting.items()
    )


def _described(group: Group) -> str:
    return f"{group.task}, {group.init} weights, {_setting(group)}"


def _published(group: Group) -> tuple[float, Published] | None:
    """The published figure to compare a group with, and its row."""
    return published_score(group.model_size, group.task) if group.init == "pretrained" else None


def _source(row: Published) -> str:
    return f"{row.source} ({'; '.join(filter(None, (row.statistic, row.pretraining)))})"


def _runs(groups: Iterable[Group]) -> list[tuple[Group, dict[str, Any]]]:
    return [(group, result) for group in groups for result in group.results]


def _by_model(groups: Sequence[Group]) -> dict[tuple, list[Group]]:
    """(model, size, init) -> its groups."""
    found: dict[tuple, list[Group]] = {}
    for group in groups:
        found.setdefault((group.model, group.model_size, group.init), []).append(group)
    return found


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value + 0.0:.1f}".replace("-0.0", "0.0")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


# ---------------------------------------------------------------- CSV and picture


def _identity(group: Group) -> dict[str, Any]:
    names = ("task", "model", "model_size", "init")
    return {name: getattr(group, name) for name in names} | group.setting


def _score_table(groups: Sequence[Group]) -> pandas.DataFrame:
    """Statistics of every setting, split and metric, beside the baseline."""
    import pandas

    best, rows = best_settings(groups), []
    for group in groups:
        for split, metric in group.scored():
            found = baselines.compare(group, split, metric)
            row = {
                **_identity(group),
                "best_setting": int(group in best),
                "split": split,
                "metric": metric,
                **vars(group.summary(split, metric)),
                "collapsed_runs": len(group.collapsed),
            } | dict.fromkeys(("baseline", "baseline_answer", "above_baseline"))
            if found:
                row["baseline"] = None if found.undefined else found.score
                row["baseline_answer"] = found.name
                row["above_baseline"] = None if found.above is None else int(found.above)
            rows.append(row)
    return pandas.DataFrame(rows, dtype=object)  # an integer beside nothing stays one


def _run_table(groups: Sequence[Group], output_dir: str) -> pandas.DataFrame:
    """One row per run; the columns of scores are those of all runs, empty where a run has none."""
    import pandas

    rows = []
    for group, run in _runs(groups):
        row = _identity(group)
        row |= {name: run.get(name) for name in ("trial", "seed", "steps", "seconds")}
        row["collapsed"] = collapse(run) if run.get("collapsed") else ""
        row["undefined"] = "; ".join(undefined(run))
        row["folder"] = os.path.relpath(run["folder"], output_dir)
        for split, scores in run["scores"].items():
            row |= {f"{split} {metric}": value for metric, value in scores.items()}
        rows.append(row)
    return pandas.DataFrame(rows, dtype=object)


def _run_column(group: Group) -> pictures.RunColumn:
    """What the picture shows of a group."""
    found, median = _published(group), group.headline.median
    values = [] if median is None else group.values(group.split, group.metric)
    return pictures.RunColumn(
        task=group.task,
        series=f"{group.model or 'model'}, {group.init}",
        values=[value or 0.0 for value in values],
        median=median,
        published=found[0] if found else None,
    )

"""The report of all runs of an output folder: Markdown, CSV and a picture.

    report.md    tables: best setting of each task, baselines, the eight-task average, pre-trained
                 against random weights, collapsed runs, all settings, other scores
    report.csv   statistics of every setting, split and metric
    runs.csv     one row per run
    report.png   per task the runs as points, their median, the published figure

Statistics are over the runs of a setting. A run whose predictions are all the same ("collapsed")
counts in them like any other, and is named. So does one whose score is undefined, as 0; where the
score of every run is undefined, so are the statistics.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from files import write_text
from finetune import baselines, pictures
from finetune.glue import GLUE_TASKS
from finetune.published import published_rows, published_score
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

REPORT_FILE = "report.md"
_SETTING_NAMES = {
    "learning_rate": "learning rate",
    "weight_decay_rate": "weight decay",
    "num_train_epochs": "epochs",
}


def write_report(output_dir: str) -> str:
    """Writes `report.md`, `report.csv`, `runs.csv` and `report.png` for all runs in a folder.

    Args:
        output_dir: of run_finetuning.py, or a folder of such folders.

    Returns:
        The path of `report.md`.

    Raises:
        InputError: there is no finished run, or a file cannot be written.
    """
    results, unfinished = read_results(output_dir)
    groups = group_results(results)
    best = best_settings(groups)
    unfinished = [os.path.relpath(folder, output_dir) for folder in unfinished]
    pictures.runs_per_task(os.path.join(output_dir, "report.png"), _columns(best))
    for name, text in (
        ("runs.csv", _csv(_run_row(group, run, output_dir) for group, run in _runs(groups))),
        ("report.csv", _csv(_score_rows(groups, best))),
        (REPORT_FILE, report_text(groups, unfinished)),
    ):
        write_text(os.path.join(output_dir, name), text)
    return os.path.join(output_dir, REPORT_FILE)


def summary_line(results: Iterable[dict[str, Any]]) -> str:
    """One line for the end of the command: the headline score of each task, and what collapsed.

    Args:
        results: contents of `result.json`.
    """
    groups = group_results(results)
    best = best_settings(groups)
    parts = []
    for group in best:
        headline = group.headline
        runs = ("median of " if headline.runs > 1 else "") + _count(headline.runs, "run")
        origin = ", random weights" if group.init == "random" else ""
        found = baselines.compare(group, group.split, group.metric)
        beside = f"; {found.words()}" if found else ""
        score = _number(headline.median)
        parts.append(f"{group.task} {score} ({group.metric}, {runs}{origin}{beside})")
    average, _ = glue_average(best)
    if average is not None and len(_models(best)) == 1:
        parts.append(f"average of the eight tasks {_number(average)}")
    if collapsed := [(group, run) for group, run in _runs(groups) if run.get("collapsed")]:
        names = ", ".join(
            f"{group.task} trial {run['trial']}"
            + (" from random weights" if group.init == "random" else "")
            for group, run in collapsed
        )
        parts.append(f"{len(collapsed)} of {len(list(_runs(groups)))} runs collapsed: {names}")
    if reasons := [f"{group.task} {why}" for group in groups for why in _undefined_reasons(group)]:
        parts.append(f"undefined scores: {'; '.join(dict.fromkeys(reasons))}")
    if single := baselines.single_trials(best):
        parts.append(f"one trial decides nothing, use --num_trials: {', '.join(single)}")
    return "; ".join(parts) or "no runs"


def report_text(groups: Sequence[Group], unfinished: Sequence[str] = ()) -> str:
    """The report as Markdown.

    Args:
        groups: see `finetune.results.group_results`.
        unfinished: folders of runs that are not finished.
    """
    best = best_settings(groups)
    runs = _count(len(list(_runs(groups))), "finished run")
    tasks = _count(len({group.task for group in groups}), "task")
    sections = [
        "# Fine-tuning results",
        f"{runs} of {tasks}. Scores are times 100. Median, mean, standard error of the mean, best "
        "and worst are over the runs of a setting, which differ in their seeds alone.",
        _unfinished(unfinished),
        "![scores](report.png)",
        _best_table(best),
        _single_trials(best),
        baselines.section(best),
        _average(best),
        _comparison(best),
        _collapsed(groups),
        _undefined(groups),
        _settings_table(groups, best),
        _other_scores(best),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


# ---------------------------------------------------------------- sections of report.md


def _unfinished(folders: Sequence[str]) -> str:
    if not folders:
        return ""
    listing = ", ".join(f"`{folder}`" for folder in folders)
    return f"**Not in here:** {_count(len(folders), 'unfinished run')}: {listing}."


def _best_table(best: Sequence[Group]) -> str:
    rows, sources = [], {}
    for group in best:
        found = published_score(group.model_size, group.task)
        published = "-"
        if found and group.init == "pretrained":
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
    return _section("Best setting of each task", text, "\n\n".join([_table(rows), *notes]))


def _single_trials(best: Sequence[Group]) -> str:
    single = baselines.single_trials(best)
    if not single:
        return ""
    return (
        f"**One trial decides nothing** ({', '.join(single)}): the seed alone moves a score, often "
        "by more than the difference in question. More runs: `--num_trials`."
    )


def _average(best: Sequence[Group]) -> str:
    lines = []
    for model, size, init in _models(best):
        mine = [g for g in best if (g.model, g.model_size, g.init) == (model, size, init)]
        run = {group.task for group in mine}
        if run.isdisjoint(GLUE_TASKS):
            continue
        average, missing = glue_average(mine)
        name = f"{model or 'model'}, {init} weights"
        if average is None:
            without = ", ".join(task for task in missing if task not in run)
            reasons = [f"{without} not run"] if without else []
            reasons += [f"{task} undefined" for task in missing if task in run]
            lines.append(f"- {name}: not given, {'; '.join(reasons)}")
        else:
            lines.append(f"- {name}: **{_number(average)}**")
        for row in published_rows(size) if init == "pretrained" else ():
            lines.append(f"  - published: {_number(row.average)}, {_source(row)}")
    metrics = ", ".join(
        f"{task} {metric}" for task, metric in AVERAGED_METRICS.items() if metric != "accuracy"
    )
    text = f"Of the medians above, as the papers do it: {metrics}, the others accuracy (mnli"
    text += " matched; wnli left out)."
    return _section("Average of the eight GLUE tasks", text, "\n".join(lines))


def _comparison(best: Sequence[Group]) -> str:
    random = {(g.task, g.model, g.model_size): g for g in best if g.init == "random"}
    rows, clear = [], 0
    for group in best:
        other = random.get((group.task, group.model, group.model_size))
        if group.init != "pretrained" or other is None:
            continue
        ours, theirs = group.headline, other.headline
        if None in (ours.median, theirs.median):
            continue
        apart = ours.worst > theirs.best
        clear += apart
        rows.append(
            {
                "task": group.task,
                "score": f"{group.split} {group.metric}",
                "random weights": _spread(theirs),
                "pre-trained": _spread(ours),
                "gain": f"{ours.median - theirs.median:+.1f}",
                "every run better": "yes" if apart else "no",
            }
        )
    text = (
        "Median (worst to best of n runs), best setting of each. The last column says whether the "
        "worst pre-trained run beats the best one from random weights: so in "
        f"{clear} of {len(rows)}."
    )
    return _section("Pre-trained against random weights", text, _table(rows))


def _collapsed(groups: Sequence[Group]) -> str:
    lines = [
        f"- {group.task}, {group.init} weights, {_setting(group)}, trial {run['trial']} "
        f"(seed {run.get('seed', 'unknown')}): {collapse(run)}"
        for group, run in _runs(groups)
        if run.get("collapsed")
    ]
    text = (
        "These give the same prediction for every example. They are counted in all figures above."
    )
    return _section("Collapsed runs", text, "\n".join(lines))


def _undefined(groups: Sequence[Group]) -> str:
    lines = [
        f"- {group.task}, {group.init} weights, {_setting(group)}: {reason}, {_count(runs, 'run')}"
        for group in groups
        for reason, runs in _undefined_reasons(group).items()
    ]
    text = "The correlation with a constant is undefined. Such a run counts as 0 beside runs that"
    return _section("Undefined scores", text + " have a score.", "\n".join(lines))


def _settings_table(groups: Sequence[Group], best: Sequence[Group]) -> str:
    if len(groups) == len(best):
        return ""
    rows = [_cells(group, group.split, group.metric) for group in groups]
    for group, row in zip(groups, rows):
        row["setting"] += " (best)" * any(group is chosen for chosen in best)
    return _section("All settings", "", _table(rows))


def _other_scores(best: Sequence[Group]) -> str:
    rows = [_cells(group, *pair) for group in best for pair in group.scored()[1:]]
    for row in rows:  # those of the setting, which the first table has
        del row["setting"], row["collapsed"]
    return _section("Other scores of the best settings", "", _table(rows))


# ---------------------------------------------------------------- parts of sections


def _section(title: str, text: str, body: str) -> str:
    """A section of Markdown; "" where there is nothing in it."""
    return "\n\n".join(part for part in (f"## {title}", text, body) if part) if body else ""


def _table(rows: Sequence[dict[str, str]]) -> str:
    """Rows of equal columns as a table in Markdown."""
    import pandas

    frame = pandas.DataFrame(rows).replace(r"\|", r"\\|", regex=True)
    return frame.to_markdown(index=False, disable_numparse=True) if rows else ""


def _cells(group: Group, split: str, metric: str) -> dict[str, str]:
    """A row of a table: one score of a group."""
    summary = group.summary(split, metric)
    found = baselines.compare(group, split, metric)
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


def _source(row: Any) -> str:
    details = "; ".join(part for part in (row.statistic, row.pretraining) if part)
    return f"{row.source} ({details})"


def _undefined_reasons(group: Group) -> collections.Counter[str]:
    """Why scores are undefined, and of how many runs."""
    return collections.Counter(why for result in group.results for why in undefined(result))


def _runs(groups: Iterable[Group]) -> Iterator[tuple[Group, dict[str, Any]]]:
    return ((group, result) for group in groups for result in group.results)


def _models(groups: Sequence[Group]) -> list[tuple]:
    return list(dict.fromkeys((g.model, g.model_size, g.init) for g in groups))


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value + 0.0:.1f}".replace("-0.0", "0.0")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# ---------------------------------------------------------------- CSV and picture


def _csv(rows: Iterable[dict[str, Any]]) -> str:
    """Rows as CSV; the columns are those of all rows, empty where a row has none."""
    import pandas

    return pandas.DataFrame(list(rows), dtype=object).to_csv(index=False, lineterminator="\n")


def _identity(group: Group) -> dict[str, Any]:
    names = ("task", "model", "model_size", "init")
    return {name: getattr(group, name) for name in names} | group.setting


def _score_rows(groups: Sequence[Group], best: Sequence[Group]) -> Iterator[dict[str, Any]]:
    """Statistics of every setting, split and metric, beside the baseline."""
    for group in groups:
        for split, metric in group.scored():
            found = baselines.compare(group, split, metric)
            above = found.above if found else None
            yield {
                **_identity(group),
                "best_setting": int(any(group is chosen for chosen in best)),
                "split": split,
                "metric": metric,
                **vars(group.summary(split, metric)),
                "collapsed_runs": len(group.collapsed),
                "baseline": found.score if found and not found.undefined else None,
                "baseline_answer": found.name if found else None,
                "above_baseline": None if above is None else int(above),
            }


def _run_row(group: Group, run: dict[str, Any], output_dir: str) -> dict[str, Any]:
    return {
        **_identity(group),
        **{name: run.get(name) for name in ("trial", "seed", "steps", "seconds")},
        "collapsed": collapse(run) if run.get("collapsed") else "",
        "undefined": "; ".join(undefined(run)),
        "folder": os.path.relpath(run["folder"], output_dir),
        **{
            f"{split} {metric}": value
            for split, scores in run["scores"].items()
            for metric, value in scores.items()
        },
    }


def _columns(best: Sequence[Group]) -> list[pictures.RunColumn]:
    """What the picture shows of each group."""
    columns = []
    for group in best:
        found = published_score(group.model_size, group.task)
        median, values = group.headline.median, group.values(group.split, group.metric)
        columns.append(
            pictures.RunColumn(
                task=group.task,
                series=f"{group.model or 'model'}, {group.init}",
                values=[v or 0.0 for v in values] if median is not None else [],
                median=median,
                published=found[0] if found and group.init == "pretrained" else None,
            )
        )
    return columns

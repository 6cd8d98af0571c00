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
from collections.abc import Iterable, Sequence
from typing import Any

from files import write_text
from finetune import baselines, pictures
from finetune.glue import GLUE_TASKS
from finetune.published import published_rows, published_score
from finetune.report_csv import runs_csv, summary_csv
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
    write_text(os.path.join(output_dir, "runs.csv"), runs_csv(groups, output_dir))
    write_text(os.path.join(output_dir, "report.csv"), summary_csv(groups, best))
    pictures.runs_per_task(os.path.join(output_dir, "report.png"), _columns(best))
    unfinished = [os.path.relpath(folder, output_dir) for folder in unfinished]
    path = os.path.join(output_dir, REPORT_FILE)
    write_text(path, report_text(groups, unfinished))
    return path


def summary_line(results: Iterable[dict[str, Any]]) -> str:
    """One line for the end of the command: the headline score of each task, and what collapsed.

    Args:
        results: contents of `result.json`.
    """
    groups = group_results(results)
    parts = []
    for group in best_settings(groups):
        headline = group.headline
        runs = ("median of " if headline.runs > 1 else "") + _count(headline.runs, "run")
        origin = ", random weights" if group.init == "random" else ""
        found = baselines.compare(group, group.split, group.metric)
        beside = f"; {found.words()}" if found else ""
        what = f"{group.metric}, {runs}{origin}{beside}"
        parts.append(f"{group.task} {_number(headline.median)} ({what})")
    line = "; ".join(parts) or "no runs"
    average, missing = glue_average(best_settings(groups))
    if average is not None and not missing and len(_models(groups)) == 1:
        line += f"; average of the eight tasks {_number(average)}"
    collapsed = [name for group in groups for name in _collapsed_names(group)]
    if collapsed:
        total = sum(len(group.results) for group in groups)
        line += f"; {len(collapsed)} of {total} runs collapsed: {', '.join(collapsed)}"
    reasons = [f"{group.task} {why}" for group in groups for why in _undefined_reasons(group)]
    if reasons:
        line += f"; undefined scores: {'; '.join(dict.fromkeys(reasons))}"
    single = baselines.single_trials(best_settings(groups))
    if single:
        line += f"; one trial decides nothing, use --num_trials: {', '.join(single)}"
    return line


def report_text(groups: Sequence[Group], unfinished: Sequence[str] = ()) -> str:
    """The report as Markdown.

    Args:
        groups: see `finetune.results.group_results`.
        unfinished: folders of runs that are not finished.
    """
    best = best_settings(groups)
    runs = _count(sum(len(group.results) for group in groups), "finished run")
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


# ---------------------------------------------------------------- sections


def _unfinished(folders: Sequence[str]) -> str:
    if not folders:
        return ""
    listing = ", ".join(f"`{folder}`" for folder in folders)
    return f"**Not in here:** {_count(len(folders), 'unfinished run')}: {listing}."


def _best_table(best: Sequence[Group]) -> str:
    head = ["task", "score", "model", "weights", "setting", *_CELLS, "published"]
    rows, sources = [], {}
    for group in best:
        found = None
        if group.init == "pretrained":
            found = published_score(group.model_size, group.task)
        published = "-"
        if found:
            score, row = found
            mark = sources.setdefault(_source(row), len(sources) + 1)
            metric = row.metrics.get(group.task)
            published = f"{_number(score)} [{mark}]" + (f" ({metric})" if metric else "")
        rows.append([*_who(group), _setting(group), *_cells(group), published])
    notes = [f"[{mark}] {source}" for source, mark in sources.items()]
    text = "## Best setting of each task\n\nChosen by the median of the score on the split named."
    if notes:
        text += (
            " Published figures are of the same architecture, pre-trained as the note says, in the "
            "task's score unless another is named."
        )
    return "\n\n".join([text, _table(head, rows), *notes])


def _average(best: Sequence[Group]) -> str:
    lines = []
    for model, size, init in _models(best):
        mine = [g for g in best if (g.model, g.model_size, g.init) == (model, size, init)]
        if not any(group.task in GLUE_TASKS for group in mine):
            continue
        average, missing = glue_average(mine)
        name = f"{model or 'model'}, {init} weights"
        if average is None:
            run = {group.task for group in mine}
            without = [task for task in missing if task not in run]
            reasons = [f"{', '.join(without)} not run"] if without else []
            reasons += [f"{task} undefined" for task in missing if task in run]
            lines.append(f"- {name}: not given, {'; '.join(reasons)}")
        else:
            lines.append(f"- {name}: **{_number(average)}**")
        if init == "pretrained":
            for row in published_rows(size):
                lines.append(f"  - published: {_number(row.average)}, {_source(row)}")
    if not lines:
        return ""
    metrics = ", ".join(
        f"{task} {metric}" for task, metric in AVERAGED_METRICS.items() if metric != "accuracy"
    )
    return (
        "## Average of the eight GLUE tasks\n\nOf the medians above, as the papers do it: "
        f"{metrics}, the others accuracy (mnli matched; wnli left out).\n\n" + "\n".join(lines)
    )


def _comparison(best: Sequence[Group]) -> str:
    pairs = []
    for group in best:
        if group.init == "pretrained":
            same = [
                other
                for other in best
                if other.init == "random"
                and (other.task, other.model, other.model_size)
                == (group.task, group.model, group.model_size)
            ]
            both = [other for other in same[:1] if None not in _medians(group, other)]
            pairs += [(group, other) for other in both]
    if not pairs:
        return ""
    rows, clear = [], 0
    for pretrained, random in pairs:
        ours, theirs = pretrained.headline, random.headline
        apart = ours.worst > theirs.best
        clear += apart
        gain = ours.median - theirs.median
        row = [pretrained.task, _score_name(pretrained), _spread(theirs), _spread(ours)]
        rows.append([*row, f"{gain:+.1f}", "yes" if apart else "no"])
    head = ["task", "score", "random weights", "pre-trained", "gain", "every run better"]
    return (
        "## Pre-trained against random weights\n\nMedian (worst to best of n runs), best setting "
        "of each. The last column says whether the worst pre-trained run beats the best one from "
        f"random weights: so in {clear} of {len(pairs)}.\n\n" + _table(head, rows)
    )


def _collapsed(groups: Sequence[Group]) -> str:
    lines = []
    for group in groups:
        for result in group.collapsed:
            reasons = collapse(result)
            seed = result.get("seed", "unknown")
            lines.append(
                f"- {group.task}, {group.init} weights, {_setting(group)}, trial "
                f"{result['trial']} (seed {seed}): {reasons}"
            )
    if not lines:
        return ""
    return (
        "## Collapsed runs\n\nThese give the same prediction for every example. They are counted "
        "in all figures above.\n\n" + "\n".join(lines)
    )


def _undefined(groups: Sequence[Group]) -> str:
    lines = [
        f"- {group.task}, {group.init} weights, {_setting(group)}: {reason}, {_count(runs, 'run')}"
        for group in groups
        for reason, runs in _undefined_reasons(group).items()
    ]
    if not lines:
        return ""
    return (
        "## Undefined scores\n\nThe correlation with a constant is undefined. Such a run counts as "
        "0 beside runs that have a score.\n\n" + "\n".join(lines)
    )


def _undefined_reasons(group: Group) -> collections.Counter[str]:
    """Why scores are undefined, and of how many runs."""
    return collections.Counter(why for result in group.results for why in undefined(result))


def _single_trials(best: Sequence[Group]) -> str:
    single = baselines.single_trials(best)
    if not single:
        return ""
    return (
        f"**One trial decides nothing** ({', '.join(single)}): the seed alone moves a score, often "
        "by more than the difference in question. More runs: `--num_trials`."
    )


def _settings_table(groups: Sequence[Group], best: Sequence[Group]) -> str:
    if len(groups) == len(best):
        return ""
    rows = []
    for group in groups:
        name = _setting(group)
        name = f"{name} (best)" if any(group is chosen for chosen in best) else name
        rows.append([*_who(group), name, *_cells(group)])
    head = ["task", "score", "model", "weights", "setting", *_CELLS]
    return "## All settings\n\n" + _table(head, rows)


def _other_scores(best: Sequence[Group]) -> str:
    rows = []
    for group in best:
        for split, metric in group.scored()[1:]:
            task, _, *who = _who(group)
            statistics = _statistics(group.summary(split, metric))
            beside = _baseline(group, split, metric)
            rows.append([task, f"{split} {metric}", *who, *statistics, beside])
    if not rows:
        return ""
    head = ["task", "score", "model", "weights", *_STATISTICS, "baseline"]
    return "## Other scores of the best settings\n\n" + _table(head, rows)


# ---------------------------------------------------------------- cells

_STATISTICS = ["runs", "median", "mean", "std. error", "best", "worst"]
_CELLS = [*_STATISTICS, "collapsed", "baseline"]


def _statistics(summary: Summary) -> list[str]:
    error = summary.standard_error
    return [
        str(summary.runs),
        f"**{_number(summary.median)}**",
        _number(summary.mean),
        "-" if error is None else _number(error),
        _number(summary.best),
        _number(summary.worst),
    ]


def _cells(group: Group) -> list[str]:
    beside = _baseline(group, group.split, group.metric)
    return [*_statistics(group.headline), str(len(group.collapsed) or "-"), beside]


def _baseline(group: Group, split: str, metric: str) -> str:
    found = baselines.compare(group, split, metric)
    return found.cell() if found else "-"


def _who(group: Group) -> list[str]:
    return [group.task, _score_name(group), group.model or "-", group.init]


def _score_name(group: Group) -> str:
    return f"{group.split} {group.metric}"


def _medians(*groups: Group) -> list[float | None]:
    return [group.headline.median for group in groups]


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


def _source(row) -> str:
    details = "; ".join(part for part in (row.statistic, row.pretraining) if part)
    return f"{row.source} ({details})"


def _collapsed_names(group: Group) -> list[str]:
    origin = " from random weights" if group.init == "random" else ""
    return [f"{group.task} trial {result['trial']}{origin}" for result in group.collapsed]


def _models(groups: Sequence[Group]) -> list[tuple]:
    return list(dict.fromkeys((g.model, g.model_size, g.init) for g in groups))


def _number(value: float | None) -> str:
    if value is None:
        return "undefined"
    return f"{value + 0.0:.1f}".replace("-0.0", "0.0")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


# ---------------------------------------------------------------- picture


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

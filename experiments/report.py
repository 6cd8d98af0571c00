"""The report of an experiment: report.md, results.csv, curves.png, scores.png.

results.csv has a row per score of a run: system, seed, step, FLOPs, hours, score, trial, value. The
report is made from it alone, so that another statistic needs no new run.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from convbert.common import storage
from convbert.common.files import read_json, write_text
from convbert.common.machine import num_cores
from convbert.experiments.declaration import AVERAGE, Claim, Experiment
from convbert.experiments.runs import (
    Run,
    fine_tuning_folder,
    measure_path,
    parts,
    results_in,
    task_of,
)
from convbert.finetune.results import collapse, headline, headline_score, summarize
from convbert.training.monitoring import NO_METRICS, read_metrics
from convbert.training.run_record import HPARAMS_FILE, git_commit

CONFIDENCE = 0.95
COLUMNS = ["system", "seed", "step", "flops", "hours", "score", "trial", "value"]
# Metrics of held-out text in the table and curves: name -> label.
HELDOUT = {
    "masked_lm_accuracy": "masked-LM accuracy",
    "disc_auc": "discriminator's AUC",
    "perplexity": "perplexity",
    "loss": "loss",
}
_LEARNED_AUC = 0.55  # a discriminator below it has learned nothing yet


def collect(experiment: Experiment, runs: Sequence[Run]) -> pd.DataFrame:
    """Returns all scores of finished and unfinished runs as rows of `COLUMNS`."""
    rows = [row for run in runs for row in _rows_of(experiment, run)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _rows_of(experiment: Experiment, run: Run) -> Iterator[tuple]:
    metrics = read_metrics(run.folder)
    seconds = _seconds_per_step(metrics)

    def row(step: int, score: str, trial: Any, value: float | None) -> tuple:
        head = (run.system, run.seed, step, run.flops(step), step * seconds / 3600)
        return (*head, score, trial, np.nan if value is None else value)

    for line in metrics:
        if line["split"] == "heldout" and "data_dir" not in line:
            for name, value in line.items():
                if name not in NO_METRICS:
                    yield row(line["step"], f"heldout {name}", "", value)
    for step, name, values in parts(experiment, run):
        for result in results_in(fine_tuning_folder(experiment, run, step, name, values)):
            score = headline_score(result)
            label = name if not name.endswith(".json") else task_of(name).name
            yield row(step, f"{label} {headline(result)[1]}", result["trial"], score or 0.0)
            if collapse(result):
                yield row(step, f"{label} collapsed", result["trial"], 1.0)
    for name, settings in experiment.scale.measures.items():
        if storage.exists(path := measure_path(run, name, settings)):
            for key, value in read_json(path).items():
                yield row(run.steps[-1], f"{name} {key}", "", value)


def _seconds_per_step(metrics: Sequence[dict[str, Any]]) -> float:
    """Returns the median time of a step: interruptions and evaluations do not count."""
    rows = [row for row in metrics if row["split"] == "train"]
    paces = [
        (b["time"] - a["time"]) / (b["step"] - a["step"])
        for a, b in itertools.pairwise(rows)
        if b["step"] > a["step"]
    ]
    return float(np.median(paces)) if paces else math.nan


def task_scores(frame: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """Returns one value per system, seed, step and score: over trials, the paper's statistic.

    Adds the average over tasks as the score "average", where all tasks have a value.
    """
    frame = frame[~frame["score"].str.endswith(" collapsed")]
    key = ["system", "seed", "step", "score"]
    values = frame.groupby(key, sort=False)["value"].apply(
        lambda of: summarize(list(of)).get(statistic, np.nan)
    )
    tasks = frame[frame["trial"] != ""]["score"].unique()
    wide = values.unstack("score")
    if len(tasks) > 1 and set(tasks) <= set(wide):
        wide[AVERAGE] = wide[list(tasks)].mean(axis=1, skipna=False)
    return wide


def _last(wide: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """Returns the rows of the last steps, indexed by system and seed."""
    last = [(run.system, run.seed, run.steps[-1]) for run in runs]
    return wide[wide.index.isin(last)].droplevel("step")


def _column(wide: pd.DataFrame, score: str) -> str | None:
    """Returns the column of a claim's score: "average", a task, or a full name."""
    found = [name for name in wide if name == score or name.rpartition(" ")[0] == score]
    return found[0] if found else None


def judge(claim: Claim, differences: Sequence[float]) -> tuple[float, float, float, str]:
    """Returns mean difference, its confidence interval, and the verdict.

    The interval is Student's, over differences paired by pre-training seed. "holds" if all of it is
    on the claimed side of 0, "contradicts" if all is on the other, else "does not show". A claim
    that two systems are level holds unless the interval is below 0.
    """
    values = np.asarray(differences, float)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, math.nan, math.nan, "one seed"
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(CONFIDENCE)
    if np.ptp(values) == 0:
        low = high = mean
    better, worse = (high < 0, low > 0) if claim.lower_is_better else (low > 0, high < 0)
    if claim.no_worse:
        better, worse = not worse, worse
    verdict = "holds" if better else "contradicts" if worse else "does not show"
    return mean, float(low), float(high), verdict


def claims_table(experiment: Experiment, last: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per claim: published difference, ours, interval, verdict."""
    rows = []
    for claim in experiment.claims:
        side = "lower" if claim.lower_is_better else "higher"
        side = "no worse" if claim.no_worse else side
        published = "" if claim.published is None else f"{claim.published:+g}"
        cells = [f"{claim.better} {side} than {claim.than}", claim.score, published]
        column = _column(last, claim.score)
        differences = []
        if column and {claim.better, claim.than} <= set(last.index.get_level_values("system")):
            pair = (last.xs(name, level="system")[column] for name in (claim.better, claim.than))
            differences = [value for value in _paired(*pair) if not math.isnan(value)]
        if not differences:
            rows.append([*cells, "", "", "0", "not run"])
            continue
        mean, low, high, verdict = judge(claim, differences)
        interval = "" if math.isnan(low) else f"{low:+.3g} to {high:+.3g}"
        rows.append([*cells, f"{mean:+.3g}", interval, str(len(differences)), verdict])
    header = ["claim", "score", "published", "here", "95 % interval", "seeds", "verdict"]
    return pd.DataFrame(rows, columns=header)


def _paired(better: pd.Series, than: pd.Series) -> list[float]:
    return (better - than).dropna().tolist()


def systems_table(experiment: Experiment, runs: Sequence[Run], last: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per system: size of its runs, mean (range over seeds) of each score."""
    shown = [f"heldout {name}" for name in HELDOUT]
    columns = [name for name in last if not name.startswith("heldout ") or name in shown]
    rows = []
    for system, of in experiment.systems.items():
        run = next(run for run in runs if run.system == system)
        row = {"system": system, "steps": f"{run.steps[-1]:,}", "FLOPs": f"{run.flops():.2e}"}
        row["seeds"] = str(sum(name == system for name, _ in last.index))
        for column in columns:
            values = last[last.index.get_level_values("system") == system][column].dropna()
            row[column] = _spread(values)
        for name, value in of.published.items():
            row[f"published {name}"] = f"{value:g}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("").replace("", "-")


def _spread(values: pd.Series) -> str:
    if values.empty:
        return ""
    mean = f"{values.mean():.4g}"
    return mean if len(values) == 1 else f"{mean} ({values.min():.4g} to {values.max():.4g})"


def notes(experiment: Experiment, runs: Sequence[Run], frame: pd.DataFrame) -> Iterator[str]:
    """Yields what is missing or suspicious: unfinished, diverged, collapsed, at the plateau."""
    for run in runs:
        name = f"{run.system}, seed {run.seed}"
        own = frame[(frame["system"] == run.system) & (frame["seed"] == run.seed)]
        if reason := run.failed:
            yield f"{name}: diverged ({reason})"
            continue
        if not run.pretrained:
            yield f"{name}: not finished"
            continue
        at_end = own[own["step"] == run.steps[-1]].drop_duplicates("score").set_index("score")
        values = at_end["value"]
        if (auc := values.get("heldout disc_auc")) is not None and auc < _LEARNED_AUC:
            yield f"{name}: the discriminator learned nothing, AUC {auc:.3f}"
        curve = own[own["score"] == "heldout loss"]["value"].tolist()
        if len(curve) > 2 and curve[0] - curve[-1] < 0.05 * curve[0]:
            yield f"{name}: the loss fell by less than 5 % after the first evaluation, a plateau"
        collapsed = own[own["score"].str.endswith(" collapsed")]
        for score, of in collapsed.groupby("score"):
            yield f"{name}: {len(of)} runs of {str(score).split()[0]} answer all alike"
        wanted = len(list(parts(experiment, run))) * experiment.scale.num_trials
        found = sum((own["trial"] != "") & ~own["score"].str.endswith(" collapsed"))
        if found < wanted:
            yield f"{name}: {wanted - found} of {wanted} fine-tuning runs are missing"


def write(experiment: Experiment, runs: Sequence[Run], output_dir: str, command: str) -> str:
    """Writes the report's files into a folder and returns the path of report.md."""
    folder = os.path.join(output_dir, f"{experiment.name}-{experiment.scale_name}")
    storage.makedirs(folder)
    frame = collect(experiment, runs)
    write_text(os.path.join(folder, "results.csv"), frame.to_csv(index=False, float_format="%.6g"))
    path = os.path.join(folder, "report.md")
    if frame.empty:
        write_text(path, f"# {experiment.name}\n\nNo run has a score yet.\n")
        return path
    wide = task_scores(frame, experiment.statistic)
    last = _last(wide, runs)
    said = [
        f"# {experiment.name}, scale {experiment.scale_name}",
        f"{experiment.about.get('claim', '')} {experiment.about.get('source', '')}.".strip(),
        f"    {command}",
        _provenance(experiment, runs, frame),
    ]
    if experiment.claims:
        said += ["## Claims", _markdown(claims_table(experiment, last))]
    said += ["## Systems", "Mean (range) over seeds of pre-training; scores of tasks times 100."]
    said += [_markdown(systems_table(experiment, runs, last))]
    if found := list(notes(experiment, runs, frame)):
        said += ["## Notes", "\n".join(f"- {note}" for note in found)]
    pictures = {"curves.png": "held-out text", "scores.png": "scores of tasks"}
    for name, about in pictures.items():
        draw = _draw_curves if name == "curves.png" else _draw_scores
        if draw(frame if name == "curves.png" else wide, os.path.join(folder, name)):
            said.append(f"![{about}]({name})")
    write_text(path, "\n\n".join(said) + "\n")
    return path


def _provenance(experiment: Experiment, runs: Sequence[Run], frame: pd.DataFrame) -> str:
    commits = {
        read_json(path)["git_commit"]
        for run in runs
        if storage.exists(path := os.path.join(run.folder, HPARAMS_FILE))
    }
    made = ", ".join(sorted(filter(None, commits))) or "an installed package"
    hours = frame.groupby(["system", "seed"])["hours"].max().sum()
    trials, scale = experiment.scale.num_trials, experiment.scale
    return (
        f"Commits of the runs {made}, of this report {git_commit()}. {scale.seeds} seeds of"
        f" pre-training, {hours:.1f} hours in all; {trials} of fine-tuning, of which the"
        f" {experiment.statistic} counts. {num_cores()} cores. {scale.data}"
    )


def _markdown(frame: pd.DataFrame) -> str:
    return frame.to_markdown(index=False, disable_numparse=True)


def _draw_curves(frame: pd.DataFrame, path: str) -> bool:
    """Draws metrics of held-out text over steps, FLOPs and hours."""
    metrics = [m for m in HELDOUT if f"heldout {m}" in set(frame["score"])]
    axes_names = {"step": "steps", "flops": "FLOPs", "hours": "hours"}
    if not metrics:
        return False
    figure, axes = _figure(len(metrics), len(axes_names))
    for line, metric in zip(axes, metrics):
        own = frame[frame["score"] == f"heldout {metric}"]
        for place, (column, label) in zip(line, axes_names.items()):
            for number, (system, of) in enumerate(own.groupby("system", sort=False)):
                for seed, run in of.groupby("seed"):
                    label_once = str(system) if seed == of["seed"].min() else None
                    place.plot(
                        run[column], run["value"], color=f"C{number}", lw=1, label=label_once
                    )
            place.set(xlabel=label, ylabel=HELDOUT[metric])
    axes[0][0].legend(fontsize=7)
    figure.savefig(path)
    return True


def _draw_scores(wide: pd.DataFrame, path: str) -> bool:
    """Draws scores of tasks: over steps if several checkpoints were fine-tuned, else by system."""
    names = [name for name in wide if not name.startswith("heldout ")]
    table = wide[names].dropna(how="all")
    if table.empty:
        return False
    figure, axes = _figure(1, len(names), width=3.2)
    systems = list(table.index.unique("system"))
    for place, name in zip(axes[0], names):
        for number, system in enumerate(systems):
            own = table[name].xs(system, level="system").dropna()
            steps = own.index.get_level_values("step")
            if steps.nunique() > 1:
                means = own.groupby("step").mean()
                place.plot(means.index, means, color=f"C{number}", lw=1, label=system)
            place.plot(
                steps if steps.nunique() > 1 else [number] * len(own),
                own, ".", color=f"C{number}", label=None if steps.nunique() > 1 else system,
            )  # fmt: skip
        place.set(title=name)
        place.title.set_fontsize(8)
    axes[0][0].legend(fontsize=6)
    figure.savefig(path)
    return True


def _figure(rows: int, columns: int, width: float = 3.6) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # takes a second to import

    figure = Figure(figsize=(width * columns, 2.6 * rows), dpi=100, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)

"""The report of an experiment: report.md, results.csv, curves.png, scores.png.

results.csv has a row per score, with its source, commit, system, seed, step, FLOPs, hours, trial,
setting (what a grid changes) and value. Tables and figures are made from the rows that `count`; the
others, of other settings and of points of a grid that are not the best, are kept, so that another
statistic needs no new run.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from convbert.analysis.pictures import panels, save
from convbert.common import storage
from convbert.common.files import write_text
from convbert.data.manifest import read_manifest
from convbert.experiments.declaration import AVERAGE, GRID, Claim, Experiment
from convbert.experiments.parts import (
    COLLAPSED,
    KEYS,
    RESULTS_FILE,
    collect,
    merged,
    parts,
    read_scores,
)
from convbert.experiments.runs import Run, failed, short
from convbert.training.run_record import git_commit

CONFIDENCE = 0.95
HELDOUT = ("masked_lm_accuracy", "disc_auc", "perplexity", "loss")  # shown; results.csv has all
_AGGREGATES = {"best": "max"}  # the other statistics have pandas' names
_ERRORS = "Mean ± standard error over seeds of pre-training, or of fine-tuning if there is one."
_LEARNED_AUC = 0.55  # a discriminator below it has learned nothing yet
_LOSS_OF_WORDS = "heldout (masked|causal|permutation)_lm_loss"
# Of the loss after the warm-up: recorded runs at the plateau keep 0.96, others go below 0.94.
_PLATEAU = 0.95


def tabulated(frame: pd.DataFrame, statistic: str, num_tasks: int = 0) -> pd.DataFrame:
    """Returns a row per system, seed and step, a column per score, the statistic over trials.

    Adds the average over tasks as the column "average", where all `num_tasks` have a score.
    """
    frame = frame[~_marks(frame)]
    wide = frame.pivot_table(
        "value", ["system", "seed", "step"], "score", _AGGREGATES.get(statistic, statistic)
    )
    tasks = frame[frame["trial"] != ""]["score"].unique()
    if len(tasks) > 1 and len(tasks) >= num_tasks:
        wide[AVERAGE] = wide[tasks].mean(axis=1, skipna=False)
    return wide


def best_of_grids(frame: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """Returns the rows without fine-tuning by hyper-parameters that are not a grid's best.

    They are chosen for a system, a task and a checkpoint by the mean, over seeds of pre-training,
    of the statistic over trials, among those that have the most seeds; of equal ones the first.
    """
    if frame.empty:  # pandas groups no rows
        return frame
    keys = ["system", "step", "label", "point"]
    labels, points = frame["score"].str.rpartition(" ")[0], frame["source"].str.partition("/")[2]
    frame = frame.assign(label=labels, point=points)
    groups = frame[~_marks(frame)].groupby([*keys, "seed"], sort=False)["value"]
    seeds = groups.agg(_AGGREGATES.get(statistic, statistic)).groupby(keys, sort=False)
    by = ["count", "mean"]
    ranked = seeds.agg(by).sort_values(by, ascending=False, kind="stable")
    best = ranked.reset_index()[keys].drop_duplicates(keys[:-1])
    return frame.merge(best).drop(columns=["label", "point"])


def _marks(frame: pd.DataFrame) -> pd.Series:
    return frame["score"].str.endswith(COLLAPSED)


def judge(claim: Claim, differences: Sequence[float]) -> tuple[float, float, float, str]:
    """Returns mean difference, its confidence interval, NaN for one seed, and the verdict.

    The interval is Student's, over differences paired by pre-training seed. "holds" if all of it is
    on the claimed side of 0, or of -margin; "contradicts" if all is on the other side, else "does
    not show".
    """
    values = pd.Series(differences, dtype=float)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, math.nan, math.nan, "one seed" if len(values) else "not run"
    error = stats.sem(values) * stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
    low, high = mean - error, mean + error
    ends, margin = (-high, -low) if claim.lower_is_better else (low, high), claim.margin or 0.0
    verdict = "holds" if ends[0] > -margin else "contradicts" if ends[1] < -margin else ""
    return mean, low, high, verdict or "does not show"


def claims_table(experiment: Experiment, last: pd.DataFrame, ended: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per claim: collapsed runs, published difference, ours, interval, verdict.

    `ended` are the rows of `last`.
    """
    rows = []
    for claim in experiment.claims:
        more, less = ("higher", "lower")[:: -1 if claim.lower_is_better else 1]
        side = f"at most {claim.margin:g} {less} than" if claim.margin else f"{more} than"
        other = f", {claim.than_score}" if claim.than_score else ""
        better = _scores(last, claim.better, claim.score)
        differences = (better - _scores(last, claim.than, claim.than_score or claim.score)).dropna()
        mean, low, high, verdict = judge(claim, differences.tolist())
        rows.append(
            {
                "claim": f"{claim.better} {side} {claim.than}{other}",
                "score": claim.score,
                "collapsed": _collapsed(claim, ended[ended["seed"].isin(differences.index)]),
                "published": "" if claim.published is None else f"{claim.published:+g}",
                "here": "" if math.isnan(mean) else f"{mean:+.3g}",
                "95 % interval": "" if math.isnan(low) else f"{low:+.3g} to {high:+.3g}",
                "seeds": str(len(differences)),
                "verdict": verdict,
            }
        )
    return pd.DataFrame(rows)


def _collapsed(claim: Claim, ended: pd.DataFrame) -> str:
    """Returns how many of a claim's fine-tuning runs give one answer, "" of none."""
    marks: list[bool] = []
    tasks = ended["score"].str.replace(" [^ ]+$", "", regex=True)
    for system, score in {
        (claim.better, claim.score),
        (claim.than, claim.than_score or claim.score),
    }:
        meant = score if score in {*tasks} else score.rpartition(" ")[0]  # without the metric
        own = (ended["system"] == system) & (ended["trial"] != "")
        marks += [*_marks(ended[own & ((tasks == meant) | (score == AVERAGE))])]
    return f"{sum(marks)} of {len(marks) - sum(marks)}" if any(marks) else ""


def _scores(last: pd.DataFrame, system: str, score: str) -> pd.Series:
    """Returns a system's scores by seed; none for a score that does not exist."""
    own = last[last.index.get_level_values("system") == system].droplevel("system")
    column = next((name for name in last if score in (name, name.rpartition(" ")[0])), None)
    return own[column] if column else pd.Series(dtype=float)


def systems_table(
    experiment: Experiment, runs: Sequence[Run], last: pd.DataFrame, ended: pd.DataFrame
) -> pd.DataFrame:
    """Returns a column per system: its budget, what is published, mean (range) of our scores."""
    columns = [n for n in last if not n.startswith("heldout ") or n.split(" ")[1] in HELDOUT]
    scores = last[columns].groupby("system").agg(_spread)
    seeds, table = last.groupby("system").size(), {}
    for run in reversed(runs):
        published = experiment.systems[run.system].published.items()
        about: dict[str, Any] = {"steps": f"{run.steps[-1]:,}", "FLOPs": f"{run.flops():.2e}"}
        about |= {"seeds": int(seeds.get(run.system, 0))}
        about |= {"published": ", ".join(f"{name} {of:g}" for name, of in published)}
        own = scores.loc[run.system].to_dict() if run.system in scores.index else {}
        tried = ended[(ended["system"] == run.system) & (ended["setting"] != "") & ~_marks(ended)]
        own |= dict(zip(tried["score"] + ", best setting", tried["setting"]))
        table[run.system] = about | own
    frame = pd.DataFrame(table)[[*experiment.chosen]].fillna("-")
    return frame.reset_index(names="")


def _spread(values: pd.Series) -> str:
    values = values.dropna()
    spread = f" ({values.min():.4g} to {values.max():.4g})" if len(values) > 1 else ""
    return f"{values.mean():.4g}{spread}" if len(values) else "-"


def errors_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns mean +- standard error at the last step, a row per system.

    Of the means of the seeds of pre-training; of one seed's runs of fine-tuning where it is alone.
    """
    tuned = frame[(frame["trial"] != "") & ~_marks(frame)]
    ends = frame.groupby(["system", "seed"])["step"].transform("max")
    tuned = tuned[tuned["step"] == ends[tuned.index]]
    keys = ["system", "score"]
    seeds = tuned.groupby([*keys, "seed"], sort=False)["value"].mean()
    found = seeds.groupby(keys, sort=False).agg(["mean", "sem"])
    errors = found["sem"].fillna(tuned.groupby(keys)["value"].sem())
    errors = errors.map(" ± {:.2g}".format, na_action="ignore").fillna("")  # none of one run
    cells = found["mean"].map("{:.4g}".format) + errors
    return cells.unstack("score").fillna("-").reset_index()


def notes(experiment: Experiment, runs: Sequence[Run], frame: pd.DataFrame) -> Iterator[str]:
    """Yields what is missing or suspicious: unfinished, diverged, collapsed, at the plateau."""
    best = best_of_grids(frame, experiment.statistic)
    for run in runs:
        name = f"{run.system}, seed {run.seed}"
        own = frame[(frame["system"] == run.system) & (frame["seed"] == run.seed)]
        own = own.sort_values("step", kind="stable")
        if run.failed or run.steps[-1] not in own["step"].values:
            yield f"{name}: diverged ({run.failed})" if run.failed else f"{name}: not finished"
            continue
        after = own[own["step"] >= run.hparams.num_warmup_steps]
        curve = after[after["score"].str.fullmatch(_LOSS_OF_WORDS)]["value"].tolist()
        first, last = (curve[0], curve[-1]) if curve else (math.inf, 0.0)
        # What continues has left the plateau before.
        if not run.start and (min(curve[1:], default=0.0) > _PLATEAU * first or last > first):
            yield f"{name}: words are hardly learned, a loss of {first:.2f}, {last:.2f} at the end"
        auc = own[own["score"] == "heldout disc_auc"]["value"].tolist()
        if auc and auc[-1] < _LEARNED_AUC:
            yield f"{name}: the discriminator has learned nothing, AUC {auc[-1]:.3f}"
        kept = best[_marks(best) & (best["system"] == run.system) & (best["seed"] == run.seed)]
        for score, of in kept.groupby("score"):
            task = str(score).removesuffix(COLLAPSED)
            yield f"{name}: {len(of)} runs of {task} give all or nearly all examples one answer"
        wanted, there = Counter[str](), Counter[str]()
        for part in [*parts(experiment, run)][1:]:  # without pre-training
            if reason := failed(part.folder):
                yield f"{name}: {os.path.basename(part.folder)} diverged ({reason})"
            wanted[part.label] += len(part.trials)
            there[part.label] += own[own["source"] == part.source]["trial"].nunique()
        if lacking := [f"{there[of]} of {n} of {of}" for of, n in wanted.items() if there[of] < n]:
            yield f"{name}: scores are missing, there are {', '.join(lacking)}"


def write(experiment: Experiment, runs: Sequence[Run], command: str) -> str:
    """Writes the report's files into a folder and returns the path of report.md."""
    folder, about, scale = experiment.folder, experiment.about, experiment.scale
    storage.makedirs(folder)
    path, frame = os.path.join(folder, "report.md"), collect(experiment, runs)
    best = best_of_grids(frame, experiment.statistic)
    kept = merged(frame, read_scores(folder))  # also those of other settings
    rows, counted = (pd.MultiIndex.from_frame(of[KEYS]) for of in (kept, best))
    kept["counts"] = rows.isin(counted)
    write_text(os.path.join(folder, RESULTS_FILE), kept.to_csv(index=False, float_format="%.6g"))
    commits = ", ".join(sorted({of or "unknown" for of in frame["commit"]})) or "none"
    hours = frame.groupby("source")["hours"].max()[lambda of: ~of.index.str.contains("/")].sum()
    made = frame.set_index(["system", "seed", "step"]).index.unique()
    ends = [(run.system, run.seed, run.steps[-1]) for run in runs]
    tuned = f"; {scale.num_trials} seeds of fine-tuning, whose {experiment.statistic} counts"
    tuned = tuned if scale.tasks else ""
    said = [
        f"# {experiment.name}, scale {experiment.scale_name}",
        f"{about.get('claim', '')} ({about.get('source', '')}) {about.get('notes', '')}".strip(),
        f"    {command}",
        f"Commits of the runs: {commits}; of this report: {short(git_commit())}."
        f" {made.isin(ends).sum()} of {len(runs)} runs of pre-training, {hours:,.2f} hours{tuned}.",
        f"Data of this scale: {scale.data}. Used: {_data(experiment) or 'unknown'}.",
    ]
    if not frame.empty:
        wide = tabulated(best, experiment.statistic, len(scale.tasks))
        last = wide[wide.index.isin(ends)].droplevel("step")
        ended = best[best.set_index(["system", "seed", "step"]).index.isin(ends)]
        names = ", ".join(scale.tasks) or "no task"
        grids = ((name, task[GRID]) for name, task in scale.tasks.items() if GRID in task)
        tried = "".join(f" {name}: the best of {json.dumps(of)}." for name, of in grids)
        means = "Mean (range) over seeds of pre-training. Tasks are times 100, the average is of"
        tables = {
            "Claims": claims_table(experiment, last, ended),
            f"Systems\n\n{means} {names}.{tried}": systems_table(experiment, runs, last, ended),
            f"Fine-tuning\n\n{_ERRORS}": errors_table(best),
        }
        for title, table in tables.items():
            if len(table):
                said += [f"## {title}", table.to_markdown(index=False, disable_numparse=True)]
        said += [f"![{name}]({name})" for name in _draw(best, wide, folder)]
    listed = "\n".join(f"- {note}" for note in notes(experiment, runs, frame)) or "None."
    write_text(path, "\n\n".join([*said, "## Notes", listed]) + "\n")
    return path


def _data(experiment: Experiment) -> str:
    """Returns the size of each data folder."""
    found = [read_manifest(folder) for folder in experiment.data_dirs.values()]
    sizes = [(of["splits"]["train"]["tokens"], of["vocabulary_size"]) for of in found if of]
    return "; ".join(f"{tokens:,} tokens, vocabulary of {size:,}" for tokens, size in sizes)


def _draw(frame: pd.DataFrame, wide: pd.DataFrame, folder: str) -> Iterator[str]:
    """Draws metrics of held-out text and scores of tasks over steps, FLOPs and hours.

    Yields the names of the files.
    """
    index = frame.drop_duplicates(["system", "seed", "step"]).set_index(["system", "seed", "step"])
    table = wide.join(index[["flops", "hours"]]).reset_index()
    heldout = [f"heldout {name}" for name in HELDOUT if f"heldout {name}" in wide]
    tasks = [*frame[frame["trial"] != ""]["score"].unique(), AVERAGE]
    axes = ("step", "flops", "hours")
    scores = [name for name in tasks if name in wide]
    for file, names in (("curves.png", heldout), ("scores.png", scores)):
        if not names:
            continue
        figure, places = panels(len(names), len(axes), 3.6, 2.6)
        for (row, column), place in np.ndenumerate(places):
            x, y = axes[column], names[row]
            for number, (system, own) in enumerate(table.groupby("system", sort=False)):
                for seed, (_, run) in enumerate(own.dropna(subset=y).groupby("seed")):
                    style = {"color": f"C{number}", "lw": 1, "marker": ".", "ms": 3}
                    place.plot(run[x], run[y], label="" if seed else str(system), **style)
            place.set(xlabel=x, ylabel=y)
        figure.axes[0].legend(fontsize=6)
        save(figure, os.path.join(folder, file), dpi=100)
        yield file

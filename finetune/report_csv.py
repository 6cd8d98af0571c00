"""The report's tables for other programs, `report.csv` and `runs.csv`."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from typing import Any

from finetune.baselines import compare
from finetune.results import Group, collapse, undefined


def summary_csv(groups: Sequence[Group], best: Sequence[Group]) -> str:
    """`report.csv`: statistics of every setting, split and metric, beside the baseline."""
    rows = []
    for group in groups:
        for split, metric in group.scored():
            summary = group.summary(split, metric)
            found = compare(group, split, metric)
            rows.append(
                {
                    "task": group.task,
                    "model": group.model,
                    "model_size": group.model_size,
                    "init": group.init,
                    **group.setting,
                    "best_setting": int(any(group is chosen for chosen in best)),
                    "split": split,
                    "metric": metric,
                    **vars(summary),
                    "collapsed_runs": len(group.collapsed),
                    "baseline": None if found is None or found.undefined else found.score,
                    "baseline_answer": None if found is None else found.name,
                    "above_baseline": None if found is None else _flag(found.above),
                }
            )
    return _csv(rows)


def runs_csv(groups: Sequence[Group], output_dir: str) -> str:
    """`runs.csv`: one row per run."""
    rows = []
    for group in groups:
        for result in group.results:
            rows.append(
                {
                    "task": group.task,
                    "model": group.model,
                    "model_size": group.model_size,
                    "init": group.init,
                    **group.setting,
                    **{name: result.get(name) for name in ("trial", "seed", "steps", "seconds")},
                    "collapsed": collapse(result) if result.get("collapsed") else "",
                    "undefined": "; ".join(undefined(result)),
                    "folder": os.path.relpath(result["folder"], output_dir),
                    **{
                        f"{split} {metric}": value
                        for split, scores in result["scores"].items()
                        for metric, value in scores.items()
                    },
                }
            )
    return _csv(rows)


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV; the columns are those of all rows, empty where a row has none."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()

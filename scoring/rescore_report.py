"""What `rescore` writes: report.json, a table and a plot of word error rates over lambda."""

from __future__ import annotations

import os
from typing import Any

from tabulate import tabulate

import files

REPORT, TABLE, PLOT = "report.json", "report.md", "wer.png"
_COLUMNS = ("", "lambda", "dev WER", "test WER", "better by", "95 % interval", "sub", "del", "ins")
_COLUMNS += ("s / 1,000",)


def write_report(folder: str, report: dict[str, Any]) -> str:
    """Writes the three files, each atomically; returns the table.

    Args:
        report: "dev" and "test" with the rows "one_best" and "oracle"; "lambdas"; "systems" by
            name.

    Raises:
        InputError: a file cannot be written.
    """
    table = as_table(report)
    files.write_json(os.path.join(folder, REPORT), report)
    files.write_text(os.path.join(folder, TABLE), table + "\n")
    draw(os.path.join(folder, PLOT), report)
    return table


def as_table(report: dict[str, Any]) -> str:
    """A Markdown table: 1-best, a row for each system, oracle."""
    rows = [_row("1-best", report, "one_best")]
    rows += [_system_row(name, system) for name, system in report["systems"].items()]
    rows.append(_row("oracle", report, "oracle"))
    alignment = ["left", *["right"] * (len(_COLUMNS) - 1)]
    return tabulate(rows, _COLUMNS, "pipe", colalign=alignment, disable_numparse=True)


def _row(name: str, report: dict[str, Any], row: str) -> list[str]:
    dev, test = report["dev"][row], report["test"][row]
    return [name, "", f"{dev['wer']:.2f}", f"{test['wer']:.2f}", "", "", *_kinds(test), ""]


def _system_row(name: str, system: dict[str, Any]) -> list[str]:
    test, better = system["test"], system["improvement"]
    low, high = better["interval"]
    seconds = system["seconds_per_1000"]
    return [
        name,
        f"{system['lambda']:g}",
        f"{system['dev']['wer']:.2f}",
        f"{test['wer']:.2f}",
        f"{better['points']:+.2f}",
        f"{low:+.2f} to {high:+.2f}",
        *_kinds(test),
        "" if seconds is None else f"{seconds:.1f}",
    ]


def _kinds(summary: dict[str, Any]) -> list[str]:
    return [f"{summary[kind]:,}" for kind in ("substitutions", "deletions", "insertions")]


def draw(path: str, report: dict[str, Any]) -> None:
    """Draws rates over lambda, dev and test side by side; the chosen lambda is a point.

    Raises:
        InputError: the PNG file cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, split in zip(axes, ("dev", "test")):
        rows = report[split]
        axis.axhline(rows["one_best"]["wer"], color="black", linestyle="--", label="1-best")
        for name, system in report["systems"].items():
            line = axis.plot(report["lambdas"], system["curves"][split], label=name)
            chosen = (system["lambda"], system[split]["wer"])
            axis.plot(*chosen, "o", color=line[0].get_color(), markersize=5)
        axis.axhline(rows["oracle"]["wer"], color="gray", linestyle=":", label="oracle")
        axis.set(xlabel="λ, the language model's weight", title=os.path.basename(rows["path"]))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("word error rate, %")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    pyplot.close(figure)

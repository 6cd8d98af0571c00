"""Pictures of what a run predicts (confusion matrix, scatter) and of the scores of all runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from files import replacing

# Up to so many labels the cells have their counts written in them.
_MAX_LABELS_WITH_COUNTS = 20


def confusion_matrix(
    path: str, labels: Sequence[str], gold: Sequence[int], predicted: Sequence[int]
) -> None:
    """Draws how often each label was taken for which other; colours are shares of the true label.

    `gold` and `predicted` are indices into `labels`. Raises InputError where `path`, a PNG file,
    cannot be written; so do the others.
    """
    pyplot = _pyplot()
    from matplotlib import colors
    from sklearn import metrics

    L = len(labels)
    counts = metrics.confusion_matrix(gold, predicted, labels=range(L))  # [L, L]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with_counts = L <= _MAX_LABELS_WITH_COUNTS
    side = max(3.5, (0.42 if with_counts else 0.2) * L + 1.5)  # inches
    figure, axis = pyplot.subplots(figsize=(side + 1, side), layout="constrained")
    display = metrics.ConfusionMatrixDisplay(shares, display_labels=list(labels))
    norm = colors.PowerNorm(0.5, 0.0, 1.0)  # rare confusions should be seen, too
    display.plot(ax=axis, cmap="Blues", include_values=False, im_kw={"norm": norm})
    display.im_.colorbar.set_label("share of the true label")
    axis.set(xlabel="predicted", ylabel="true")
    if L > 6 or max(map(len, labels)) > 10:
        axis.tick_params(axis="x", labelrotation=90)
    if not with_counts:
        axis.tick_params(labelsize=7)
    else:
        size = 10 if L <= 6 else 7
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.3 else "black"
            axis.text(column, row, f"{count}", ha="center", va="center", color=color, size=size)
    _save(pyplot, figure, path)


def score_scatter(path: str, gold: Sequence[float], predicted: Sequence[float]) -> None:
    """Draws predicted scores over true ones, a point per example."""
    pyplot = _pyplot()
    gold, predicted = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    figure, axis = pyplot.subplots(figsize=(4.6, 4.4), layout="constrained")
    axis.plot(gold, predicted, ".", alpha=0.35, markersize=5)
    both = np.concatenate([gold, predicted])
    both = both[np.isfinite(both)]
    if both.size:
        ends = [both.min(), both.max()]
        axis.plot(ends, ends, "-", color="gray", linewidth=0.8)
    axis.set(xlabel="true score", ylabel="predicted score")
    axis.grid(alpha=0.3)
    _save(pyplot, figure, path)


@dataclasses.dataclass(frozen=True)
class RunColumn:
    """The runs of one task and series in `runs_per_task`."""

    task: str  # where on the horizontal axis
    series: str  # model and weights; one colour each
    values: list[float]  # score of each run; [] where scores are undefined
    median: float | None
    published: float | None  # figure to compare with


def runs_per_task(path: str, columns: Sequence[RunColumn]) -> None:
    """Draws each task's runs as points, their median as a bar, the published figure as a star."""
    pyplot = _pyplot()
    tasks = list(dict.fromkeys(column.task for column in columns))
    series = list(dict.fromkeys(column.series for column in columns))
    width = 0.8 / len(series)
    size = (max(4.0, 1.1 * len(tasks) * len(series) ** 0.5 + 2), 3.6)
    figure, axis = pyplot.subplots(figsize=size, layout="constrained")
    for column in columns:
        color = f"C{series.index(column.series) % 10}"
        x = tasks.index(column.task) + (series.index(column.series) + 0.5) * width - 0.4
        places = x + np.linspace(-0.25, 0.25, len(column.values) + 2)[1:-1] * width
        axis.plot(places, column.values, "o", color=color, alpha=0.6, label=column.series)
        ends = (x - 0.35 * width, x + 0.35 * width)
        if column.median is not None:
            axis.hlines(column.median, *ends, color=color, linewidth=2)
        if column.published is not None:
            axis.plot(x, column.published, "*", color="black", markersize=9, label="published")
    axis.set_xticks(range(len(tasks)), tasks)
    axis.set(xlim=(-0.6, len(tasks) - 0.4), ylabel="score x 100")
    axis.grid(alpha=0.3, axis="y")
    handles, labels = axis.get_legend_handles_labels()
    entries = dict(zip(labels, handles))  # one for each series
    axis.legend(entries.values(), entries.keys(), fontsize=8)
    _save(pyplot, figure, path)


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(pyplot, figure, path: str) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    pyplot.close(figure)

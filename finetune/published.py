"""What the papers report on development sets, to be printed beside one's own results.

Only figures that stand in the documents named, none read off a plot or taken from elsewhere. They
are of models pre-trained on far more text than the quickstart's: `pretraining` says how much.
"""

from __future__ import annotations

import dataclasses

from model.sizes import ALIASES


@dataclasses.dataclass(frozen=True)
class Published:
    """One row of a published table.

    Attributes:
        size: the model's name in `model.sizes.SIZES`.
        pretraining: objective, amount of text, updates, as far as the source tells.
        source: document and table.
        statistic: what a figure is of: median, mean or best of how many runs; "" where the source
            does not say.
        average: of the eight GLUE tasks as printed there, times 100.
        scores: task (as in `finetune.glue`) -> headline score, times 100.
        standard_errors: task -> standard error of the mean, for sources that print it.
        metrics: task -> metric, where the source uses another one than `finetune.glue`'s main one.
    """

    size: str
    pretraining: str
    source: str
    statistic: str
    average: float
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    standard_errors: dict[str, float] = dataclasses.field(default_factory=dict)
    metrics: dict[str, str] = dataclasses.field(default_factory=dict)


_SUPPLEMENT = "ConvBERT supplement, Table 3"
_FROM_ELECTRA = _SUPPLEMENT + " (there from the ELECTRA paper)"
_RESPONSE = "ConvBERT author response, Table 6"
_ALE = "ALE report, Table IV"
_ALE_METRICS = {"sts": "pearson"}  # Table II there; MRPC and QQP by accuracy, as everywhere here
_MEDIAN = "median of 9 runs"  # point 8 of the ConvBERT author response
_SCRIPT = "SCRIPT, Table 2"


def _supplement(size: str, rows: list[tuple[str, float]], source: str = _SUPPLEMENT) -> list:
    """Rows of the supplement's table; only its authors' own figures are said to be medians."""
    statistic = _MEDIAN if source == _SUPPLEMENT else ""
    return [Published(size, how, source, statistic, average) for how, average in rows]


def _ale(size: str, flops: str, *cells: float) -> Published:
    """A row of the ALE report; cells as there: eight tasks, then their average."""
    percent = [round(100 * cell, 1) for cell in cells]
    tasks = ("mrpc", "cola", "mnli", "sst", "qqp", "qnli", "rte", "sts")
    objective = "MLM" if size == "bert-small" else "RTD"
    return Published(
        size,
        f"{objective}, {flops} FLOPs",
        _ALE,
        "best of 10 runs",
        percent[-1],
        scores=dict(zip(tasks, percent)),
        metrics=_ALE_METRICS,
    )


PUBLISHED: tuple[Published, ...] = (
    # The only row with single tasks for a ConvBERT. Its pre-training is that of the row of the
    # supplement with the same average.
    Published(
        "convbert-small",
        "RTD, 32 GB, 1M updates",
        _RESPONSE,
        "mean",
        81.4,
        scores={
            "mnli": 81.4,
            "qnli": 88.3,
            "qqp": 90.3,
            "rte": 67.4,
            "sst": 90.2,
            "mrpc": 86.7,
            "cola": 59.4,
            "sts": 87.8,
        },
        standard_errors={
            "mnli": 0.2,
            "qnli": 0.1,
            "qqp": 0.1,
            "rte": 0.8,
            "sst": 0.4,
            "mrpc": 0.6,
            "cola": 1.4,
            "sts": 0.3,
        },
    ),
    *_supplement(
        "convbert-small",
        [
            ("MLM, 16 GB, 1.45M updates", 75.9),
            ("RTD, 16 GB, 1M updates", 80.6),
            ("RTD, 32 GB, 1M updates", 81.4),
            ("RTD, 32 GB, 4M updates", 81.8),
        ],
    ),
    *_supplement(
        "convbert-medium-small",
        [("RTD, 32 GB, 1M updates", 82.1), ("RTD, 32 GB, 4M updates", 82.8)],
    ),
    *_supplement(
        "convbert-base", [("RTD, 32 GB, 1M updates", 86.0), ("RTD, 32 GB, 4M updates", 87.7)]
    ),
    *_supplement("bert-small", [("MLM, 16 GB, 1.45M updates", 75.1)], _FROM_ELECTRA),
    # The table's "BERT" trained by replaced-token detection is ELECTRA.
    *_supplement(
        "electra-small",
        [
            ("RTD, 16 GB, 1M updates", 79.7),
            ("RTD, 32 GB, 1M updates", 80.3),
            ("RTD, 160 GB, 4M updates", 81.1),
        ],
        _FROM_ELECTRA,
    ),
    # Its other row of 110-125 M parameters and MLM is RoBERTa's, another vocabulary.
    *_supplement("bert-base", [("MLM, 16 GB, 1M updates", 82.2)], _FROM_ELECTRA),
    *_supplement(
        "electra-base",
        [("RTD, 16 GB, 766k updates", 85.1), ("RTD, 160 GB, 4M updates", 87.5)],
        _FROM_ELECTRA,
    ),
    # Of SCRIPT's Table 2 only the averages, which Table 1 there confirms.
    Published("electra-small", "RTD, OpenWebText, 1M updates", _SCRIPT, "mean of 8 runs", 80.38),
    Published("electra-base", "RTD, OpenWebText, 766k updates", _SCRIPT, "mean of 8 runs", 85.06),
    _ale("bert-small", "2.3e17", 0.838, 0.317, 0.785, 0.908, 0.877, 0.862, 0.610, 0.862, 0.757),
    _ale("electra-small", "2.3e17", 0.824, 0.509, 0.770, 0.877, 0.888, 0.847, 0.592, 0.840, 0.768),
    _ale("electra-small", "4.6e17", 0.831, 0.561, 0.769, 0.869, 0.887, 0.851, 0.592, 0.848, 0.776),
    _ale("ale-small", "2.3e17", 0.738, 0.305, 0.745, 0.834, 0.878, 0.824, 0.567, 0.810, 0.713),
)


def published_rows(size: str | None) -> list[Published]:
    """The rows of one size, by its full name or its alias; none for None or an unknown size."""
    return [row for row in PUBLISHED if row.size == ALIASES.get(size or "", size)]


def published_score(size: str | None, task: str) -> tuple[float, Published] | None:
    """The first figure that was published for a size on a task, and its row; None without one."""
    for row in published_rows(size):
        if task in row.scores:
            return row.scores[task], row
    return None

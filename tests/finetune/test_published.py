"""Published figures: every row cites its source and agrees with itself."""

import re

import pytest

from finetune.glue import GLUE_TASKS, TASKS
from finetune.published import PUBLISHED, published_rows, published_score
from model.sizes import SIZES

DOCUMENTS = ("ConvBERT supplement", "ConvBERT author response", "SCRIPT", "ALE report")


def test_rows_cite_their_table_and_speak_of_known_sizes_tasks_and_metrics():
    assert len(PUBLISHED) == 24
    for row in PUBLISHED:
        document, _ = re.match(r"(.+), Table ([0-9]+|[IVX]+)\b", row.source).groups()
        assert document in DOCUMENTS
        assert row.pretraining.startswith(("MLM, ", "RTD, "))
        assert row.size in SIZES
        assert set(row.scores) in (set(), set(GLUE_TASKS), {"race_middle"})
        assert all(metric in TASKS[task].metrics for task, metric in row.metrics.items())


@pytest.mark.parametrize(
    "row", [row for row in PUBLISHED if row.average and row.scores], ids=lambda row: row.size
)
def test_the_average_is_that_of_the_eight_tasks(row):
    """What the papers average, and that no cell was copied wrongly."""
    assert sum(row.scores.values()) / 8 == pytest.approx(row.average, abs=0.051)


def test_figures_of_a_size():
    assert [row.average for row in published_rows("convbert-medium-small")] == [82.1, 82.8]
    assert published_rows("small") == published_rows("convbert-small")
    assert published_rows(None) == []
    assert published_rows("convbert-tiny") == []


def test_figure_of_a_task():
    score, row = published_score("convbert-small", "cola")
    assert (score, row.source) == (59.4, "ConvBERT author response, Table 6")
    assert published_score("convbert-base", "cola") is None
    assert published_score("convbert-small", "pos") is None

"""Published figures: every row cites its source and agrees with itself."""

import re

import pytest

from finetune.glue import GLUE_TASKS, TASKS
from finetune.published import PUBLISHED, PUBLISHED_TASKS, published_rows, published_score
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


def test_figures_of_single_tasks_are_of_known_tasks_and_metrics():
    assert len({(row.task, row.model, row.source) for row in PUBLISHED_TASKS}) == len(
        PUBLISHED_TASKS
    )
    for row in PUBLISHED_TASKS:
        assert row.metric in TASKS[row.task].plugin.metrics
        assert 0 < row.score < 100
        assert row.source.startswith(DOCUMENTS)
    scores = {row.model: row.score for row in PUBLISHED_TASKS if row.task == "ptb"}
    assert scores["BERT-large"] == 97.73
    assert scores["BERT-large with a CRF"] == 97.68

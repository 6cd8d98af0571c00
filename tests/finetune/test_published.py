"""Published figures: every row cites its source and agrees with itself."""

import re

import pytest

from finetune.glue import GLUE_TASKS, TASKS
from finetune.published import PUBLISHED, PUBLISHED_TASKS, published_rows
from model.sizes import SIZES, named_size, size_of

DOCUMENTS = ("ConvBERT supplement", "ConvBERT author response", "SCRIPT", "ALE report")
RTD, MLM = "replaced_token_detection", "masked_lm"


def rows_of(size, objective, **changes):
    encoder = named_size(size).replace(**changes).to_json()
    run = {"init": "pretrained", "objective": objective, "hparams": {"encoder": encoder}}
    return published_rows(run)


def averages(size, objective, **changes):
    rows = rows_of(size, objective, **changes)
    return [row.scores["average"] for row in rows if "average" in row.scores]


def test_rows_cite_their_table_and_speak_of_known_sizes_tasks_and_metrics():
    for row in PUBLISHED:
        document, _ = re.match(r"(.+), Table ([0-9]+|[IVX]+)\b", row.source).groups()
        assert document in DOCUMENTS
        assert row.size in SIZES
        assert row.statistic.split(" ")[0] in ("", "median", "mean", "best")
        assert {*row.scores} <= {"average", *TASKS}
        assert {*row.errors} <= {*row.scores}
        assert all(metric in TASKS[task].metrics for task, metric in row.metrics.items())


@pytest.mark.parametrize(
    "row", [row for row in PUBLISHED if {*GLUE_TASKS} < {*row.scores}], ids=lambda row: row.size
)
def test_the_average_is_that_of_the_eight_tasks(row):
    """What the papers average, and that no cell was copied wrongly."""
    mean = sum(row.scores[task] for task in GLUE_TASKS) / 8
    assert mean == pytest.approx(row.scores["average"], abs=0.051)


def test_rows_are_of_an_architecture_and_an_objective():
    assert averages("convbert-medium-small", RTD) == [82.1, 82.8]
    assert averages("electra-small", RTD) == [79.7, 80.3, 81.1, 80.38, 76.8, 77.6]
    assert averages("bert-small", MLM) == [75.1, 75.7]
    assert averages("bert-small", "self_critic") == [81.32]
    assert averages("bert-base", "self_critic") == [85.76]
    assert averages("bert-base", MLM) == [82.2, 86.4]
    assert averages("convbert-small", MLM) == [75.9]
    assert averages("bert-small", None) == averages("convbert-tiny", RTD) == []
    (race,) = rows_of("xlnet-base", "permutation_lm")
    assert race.scores == {"race_middle": 69.2}
    assert "race_middle" in [task for row in rows_of("bert-base", MLM) for task in row.scores]
    assert averages("convbert-small", RTD, vocab_size=99, hidden_dropout_prob=0.0) == averages(
        "convbert-small", RTD
    )


def test_rows_of_the_ablation():
    assert averages("convbert-medium-small", RTD, token_mixer="attention") == [81.0]
    larger = {"token_mixer": "attention", "hidden_size": 432, "intermediate_size": 1728}
    assert averages("convbert-medium-small", RTD, **larger) == [81.1]


def test_standard_errors():
    (row,) = [row for row in PUBLISHED if row.errors]
    assert (row.scores["cola"], row.errors["cola"], row.errors["average"]) == (59.4, 1.4, 0.5)


@pytest.mark.parametrize(
    ("size", "objective"),
    [("bert-small", MLM), ("electra-small", RTD), ("bert-base", "self_critic")],
)
def test_a_size_has_the_name_of_its_objective(size, objective):
    assert size_of(named_size(size), objective) == size


def test_figures_of_single_tasks_are_of_known_tasks_and_metrics():
    for row in PUBLISHED_TASKS:
        assert row["metric"] in TASKS[row["task"]].plugin.metrics
        assert 0 < float(row["score"]) < 100
        assert row["source"].startswith(DOCUMENTS)

"""Published figures: every row cites its source and agrees with itself."""

import pytest

from finetune.glue import GLUE_TASKS
from finetune.published import PUBLISHED, published_rows
from model.sizes import named_size

RTD, MLM = "replaced_token_detection", "masked_lm"


def rows_of(size, objective, **changes):
    encoder = named_size(size).replace(**changes).to_json()
    run = {"init": "pretrained", "objective": objective, "hparams": {"encoder": encoder}}
    return published_rows(run)


def averages(size, objective, **changes):
    rows = rows_of(size, objective, **changes)
    return [row.scores["average"] for row in rows if "average" in row.scores]


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

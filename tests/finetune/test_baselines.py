"""What one answer to everything scores, and how reports show it."""

import csv
import io
import json
import pathlib

import pytest

from finetune.baselines import baseline, compare
from finetune.report import report_text, summary_line, write_report
from finetune.results import group_results
from finetune.squad.examples import QuestionExample
from tests.finetune.kinds_support import sentences, task_of, texts
from tests.finetune.test_report import result, write_results

QUESTIONS = [
    QuestionExample("1", "q", "a b c", ("a b",), 0, False),
    QuestionExample("2", "q", "a b c", (), None, True),
]


@pytest.mark.parametrize(
    ("task", "examples", "name", "answer", "scores"),
    [
        (
            task_of("classification", "accuracy", "f1", "matthews_corrcoef"),
            texts([1, 0, 1, 1]),
            "most frequent label",
            "yes",
            [75.0, pytest.approx(100 * 6 / 7), 0.0],
        ),
        # Of equally frequent ones the first.
        (task_of("classification", "accuracy"), texts([1, 0]), "most frequent label", "no", [50.0]),
        # The mean has no correlation.
        (task_of("regression", "spearman"), texts([1.0, 2.0, 4.5]), "mean", 2.5, [None]),
        (
            task_of("tagging", "token_accuracy", "f1", labels=("B-PER", "O")),
            sentences([1, 1, 0], [], [1]),
            "most frequent tag",
            "O",
            [75.0, 0.0],
        ),
        (
            task_of("span", "f1", "exact_match", version_2=True),
            QUESTIONS,
            "no answer",
            "",
            [50.0] * 2,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_best_constant_answer(task, examples, name, answer, scores):
    found = baseline(task, examples, task.plugin.hparams())
    expected = dict(zip(task.metrics, scores, strict=True))
    assert found == {"name": name, "answer": answer, "scores": expected}
    json.dumps(found, allow_nan=False)


def test_questions_that_all_have_answers_have_no_baseline():
    task = task_of("span", "f1", version_2=False)
    assert baseline(task, QUESTIONS[:1], task.plugin.hparams()) is None


def recorded(score, trial=0, task="wnli", base=56.3, **more):
    found = {"name": "most frequent label", "answer": "0", "scores": {"accuracy": base}}
    return result(task, score, trial, baselines={"dev": found}, **more)


@pytest.mark.parametrize(("score", "above"), [(54.2, False), (56.3, False), (56.4, True)])
def test_reports_say_what_is_not_above_the_baseline(tmp_path, score, above):
    write_results(tmp_path, [recorded(score), recorded(score, 1)])
    text = pathlib.Path(write_report(str(tmp_path))).read_text(encoding="utf-8")
    assert ("56.3, **not above** |" in text) == (not above)
    assert "wnli, pretrained weights: most frequent label (`0`) on dev: accuracy 56.3" in text
    (row,) = csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text()))
    assert (row["baseline"], row["baseline_answer"]) == ("56.3", "most frequent label")
    assert row["above_baseline"] == str(int(above))
    line = summary_line([recorded(score), recorded(score, 1)])
    assert ("not above most frequent label: 56.3" in line) == (not above)
    assert "most frequent label: 56.3" in line


def test_an_undefined_baseline_counts_as_zero():
    found = {"name": "mean", "answer": 2.5, "scores": {"spearman": None}}
    for score, above in ((-3.0, False), (80.0, True), (None, None)):
        scores = {"scores": {"dev": {"spearman": score}}, "baselines": {"dev": found}}
        (group,) = group_results([result("sts", **scores)])
        compared = compare(group, "dev", "spearman")
        assert (compared.score, compared.undefined, compared.above) == (0.0, True, above)
        assert "mean (`2.50`) on dev: spearman undefined" in report_text([group])


def test_results_without_a_baseline_are_reported_as_before():
    (group,) = group_results([result(score=40.0)])
    assert compare(group, group.split, group.metric) is None
    assert "Baselines" not in report_text([group])
    (group,) = group_results([result("squadv1", 40.0, baselines={"dev": None})])
    assert compare(group, group.split, group.metric) is None


def test_one_trial_decides_nothing():
    one, two = [recorded(60.0)], [recorded(60.0), recorded(61.0, 1)]
    for said in (report_text(group_results(one)), summary_line(one)):
        assert "ne trial decides nothing" in said
        assert "--num_trials" in said
    for said in (report_text(group_results(two)), summary_line(two)):
        assert "decides nothing" not in said

"""What one answer to everything scores, and whether a result is above it."""

import json

import pytest

from finetune.baselines import baseline, compare, draws
from finetune.report import report_text
from finetune.results import group_results
from finetune.squad.decode import SpanAnswer
from finetune.squad.examples import QuestionExample
from tests.finetune.kinds_support import predicted, sentences, task_of, texts
from tests.finetune.test_report import result

QUESTIONS = [
    QuestionExample("1", "q", "a b c", ("a b",), 0, False),
    QuestionExample("2", "q", "a b c", (), None, True),
]
SPANS = [SpanAnswer("a b", 0, 0, 0.0, -9.0, ())] * 2
VERSION_2 = task_of("span", "f1", "exact_match", version_2=True)


@pytest.mark.parametrize(
    ("task", "examples", "given", "name", "answer", "scores"),
    [
        (
            task_of("classification", "accuracy", "f1", "matthews_corrcoef"),
            texts([1, 0, 1, 1]),
            [1, 0, 1, 1],
            "most frequent label",
            "yes",
            [75.0, pytest.approx(100 * 6 / 7), 0.0],
        ),
        (  # of equally frequent ones the first
            task_of("classification", "accuracy"),
            texts([1, 0]),
            [1, 0],
            "most frequent label",
            "no",
            [50.0],
        ),
        (  # the mean has no correlation
            task_of("regression", "spearman"),
            texts([1.0, 2.0, 4.5]),
            [1.0, 2.0, 3.0],
            "mean",
            2.5,
            [None],
        ),
        (
            task_of("tagging", "token_accuracy", "f1", labels=("B-PER", "O")),
            sentences([1, 1, 0], [], [1]),
            [(1, 1, 1), (), (1,)],
            "most frequent tag",
            "O",
            [75.0, 0.0],
        ),
        (VERSION_2, QUESTIONS, SPANS, "no answer", "", [50.0] * 2),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_best_constant_answer(task, examples, given, name, answer, scores):
    found = baseline(predicted(task, examples, given))
    low, high = found.pop("lead")
    assert low <= high
    expected = dict(zip(task.metrics, scores, strict=True))
    assert found == {"name": name, "answer": answer, "scores": expected}
    json.dumps(found, allow_nan=False)


def test_questions_that_all_have_answers_have_no_baseline():
    task = task_of("span", "f1", version_2=False)
    assert baseline(predicted(task, QUESTIONS[:1], SPANS[:1])) is None


@pytest.mark.parametrize(
    ("copies", "right", "above"),
    # Three right answers of three, where two of three have the label: chance does that often.
    [(1, 3, False), (100, 3, True), (100, 2, False)],
)
def test_a_few_examples_decide_nothing(copies, right, above):
    task, labels = task_of("classification", "accuracy"), [1, 1, 0]
    answers = labels if right == 3 else [1, 1, 1]
    given = predicted(task, texts(labels * copies), answers * copies)
    scores = {"dev": task.plugin.score(given)}
    run = result("wnli", scores=scores, baselines={"dev": baseline(given)})
    (group,) = group_results([run])
    assert compare(group).above is above
    assert ("not clearly above most" in report_text([group])) == (not above)


def test_an_undefined_baseline_counts_as_zero():
    task = task_of("regression", "spearman")
    for answers, above in (([1.0, 2.0, 3.0, 4.0], True), ([4.0, 3.0, 2.0, 1.0], False)):
        given = predicted(task, texts([1.0, 2.0, 3.0, 4.0] * 9), answers * 9)
        found = {"dev": task.plugin.score(given)}, {"dev": baseline(given)}
        (group,) = group_results([result("sts", scores=found[0], baselines=found[1])])
        assert (compare(group).score, compare(group).above) == (None, above)
    scores = {"scores": {"dev": {"spearman": None}}, "baselines": {"dev": baseline(given)}}
    (group,) = group_results([result("sts", **scores)])
    assert compare(group).above is None


def test_an_example_that_is_drawn_twice_counts_twice():
    """Scores of questions are by id."""
    task = VERSION_2
    examples = [*QUESTIONS, QuestionExample("3", "q", "a b c", ("a b",), 0, False)]
    given = predicted(task, examples, [SPANS[0]] * 3)
    found = {round(task.plugin.score(part)["f1"]) for part in draws(given, 99)}
    assert found == {0, 33, 67, 100}

"""Prediction files of all kinds, and the largest errors."""

import json

import numpy as np
import pytest

from finetune import predictions
from finetune.kinds.tagging import TaggedExample
from finetune.kinds.texts import TextExample
from finetune.squad.decode import SpanAnswer
from finetune.squad.examples import QuestionExample
from tests.finetune.kinds_support import predicted, task_of

CLASSES = task_of("classification", labels=("bad", "good"))
TEXTS = [
    TextExample("0", "très bien", None, 1),
    TextExample("1", "dull", "and\nlong", 0),
    TextExample("2", "fine", None, 1),
    TextExample("3", "poor", None, 0),
]
LOGITS = np.log([[0.1, 0.9], [0.4, 0.6], [0.99, 0.01], [0.9, 0.1]])

SCORES = task_of("regression", label_range=(0.0, 5.0))
TAGS = task_of("tagging", labels=("DET", "NOUN", "VERB"))
SENTENCES = [
    TaggedExample("s0", ("the", "dog", "runs"), (0, 1, 2)),
    TaggedExample("s1", ("a", "run"), (0, 1)),
]
QUESTIONS = task_of("span", version_2=True)


def question(name, *gold):
    return QuestionExample(name, "who?", "Ada met Bob", gold, None, not gold)


def span(text, score=-1.0, null_score=-9.0):
    return SpanAnswer(text, 0, len(text), score, null_score, ())


ROUND_TRIPS = {
    "classification": (
        predicted(CLASSES, TEXTS[:1], [1], {"logits": LOGITS}),
        {"prediction": "good", "probabilities": {"bad": 0.1, "good": 0.9}, "label": "good"},
    ),
    "unlabelled": (
        predicted(CLASSES, [TextExample("0", "x", None, None)], [0]),
        {"prediction": "bad"},
    ),
    "regression": (
        predicted(SCORES, [TextExample("0", "x", "y", 2.5)], [3.25]),
        {"prediction": 3.25, "label": 2.5},
    ),
    "no number": (
        predicted(SCORES, [TextExample("0", "x", "y", 0.0)], [float("nan")]),
        {"prediction": None, "label": 0.0},
    ),
    "tagging": (
        predicted(TAGS, [TaggedExample("0", ("the", "dog"), (0, 1))], [(0, 2)]),
        {"words": ["the", "dog"], "prediction": ["DET", "VERB"], "label": ["DET", "NOUN"]},
    ),
    "span": (
        predicted(QUESTIONS, [question("0", "Ada")], [span("Ada")]),
        {"prediction": "Ada", "score": -1.0, "null_score": -9.0, "label": ["Ada"]},
    ),
    "no answer": (
        predicted(QUESTIONS, [question("0")], [span("Bob", null_score=4.0)]),
        {"prediction": "", "score": -1.0, "null_score": 4.0, "label": []},
    ),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_round_trips(tmp_path, name):
    given, expected = ROUND_TRIPS[name]
    path = predictions.write(str(tmp_path), "dev", given)
    assert predictions.read(path) == [{"id": "0", **expected}]
    assert not list(tmp_path.glob("*.tmp*"))
    if given.task is QUESTIONS:  # the official files, too
        official = json.loads((tmp_path / "dev_predictions.json").read_text())
        assert official == {"0": expected["prediction"]}


def ranked(text):
    """The examples that a list of errors names."""
    return [line.split(". ")[1] for line in text.splitlines() if line.startswith("##")]


def test_largest_classification_errors_are_the_surest():
    given = predicted(CLASSES, TEXTS, [1, 1, 0, 0], {"logits": LOGITS})
    text = predictions.largest_errors(given, 5)
    assert ranked(text) == ["2", "1"]
    assert all(part in text for part in ("0.990", "dull", "and long"))
    assert ranked(predictions.largest_errors(given, 1)) == ["2"]


@pytest.mark.parametrize(
    ("threshold", "names"), [(-2.75, "302"), (9.0, "20"), (-10.0, "013")], ids=str
)
def test_largest_span_errors_have_no_word_in_common(threshold, names):
    examples = [question("0", "Ada"), question("1", "Bob"), question("2"), question("3", "Ada")]
    answers = [span("Bob", -3.0), span("met Bob"), span("Bob", -0.5), span("Ada", -1.0, 5.0)]
    given = predicted(QUESTIONS, examples, answers, qa_na_threshold=threshold)
    text = predictions.largest_errors(given, 9)
    assert sorted(ranked(text)) == sorted(names)
    if threshold == -2.75:  # log probabilities -0.007, -0.5, -3
        assert ranked(text) == [*"320"]

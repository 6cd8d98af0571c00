"""Prediction files of all kinds, the largest errors, and the pictures."""

import json

import numpy as np
import pytest

from errors import InputError
from finetune import pictures, predictions
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


def test_classification_round_trip(tmp_path):
    path = str(tmp_path / "dev.jsonl")
    predictions.write(path, predicted(CLASSES, TEXTS, [1, 1, 0, 0], {"logits": LOGITS}))
    rows = predictions.read(path)
    assert rows[0] == {
        "id": "0",
        "prediction": "good",
        "probabilities": {"bad": 0.1, "good": 0.9},
        "label": "good",
    }
    assert [row["prediction"] for row in rows] == ["good", "good", "bad", "bad"]
    assert not list(tmp_path.glob("*.tmp*"))


def test_unlabelled_examples_have_no_label(tmp_path):
    path = str(tmp_path / "test.jsonl")
    predictions.write(path, predicted(CLASSES, [TextExample("7", "x", None, None)], [0]))
    assert predictions.read(path) == [{"id": "7", "prediction": "bad"}]


def test_regression_and_scores_that_are_no_numbers(tmp_path):
    path = str(tmp_path / "dev.jsonl")
    examples = [TextExample("0", "x", "y", 2.5), TextExample("1", "x", "y", 0.0)]
    predictions.write(path, predicted(SCORES, examples, [3.25, float("nan")]))
    assert predictions.read(path) == [
        {"id": "0", "prediction": 3.25, "label": 2.5},
        {"id": "1", "prediction": None, "label": 0.0},
    ]


def test_tagging(tmp_path):
    path = str(tmp_path / "dev.jsonl")
    predictions.write(path, predicted(TAGS, SENTENCES, [(0, 2, 2), (0, 1)]))
    assert predictions.read(path)[0] == {
        "id": "s0",
        "words": ["the", "dog", "runs"],
        "prediction": ["DET", "VERB", "VERB"],
        "label": ["DET", "NOUN", "VERB"],
    }


def test_span_writes_the_official_files_too(tmp_path):
    examples = [question("q0", "Ada"), question("q1")]
    answers = [span("Ada"), span("Bob", null_score=4.0)]
    path = predictions.write_split(str(tmp_path), "dev", predicted(QUESTIONS, examples, answers))
    rows = predictions.read(path)
    assert [row["prediction"] for row in rows] == ["Ada", ""]
    assert rows[0]["label"] == ["Ada"]
    assert rows[1] == {"id": "q1", "prediction": "", "score": -1.0, "null_score": 4.0, "label": []}
    official = json.loads((tmp_path / "dev_predictions.json").read_text())
    assert official == {"q0": "Ada", "q1": ""}


def test_answers_must_be_one_per_example(tmp_path):
    with pytest.raises(ValueError):
        predictions.write(str(tmp_path / "dev.jsonl"), predicted(CLASSES, TEXTS, [1]))
    assert not list(tmp_path.iterdir())


def test_read_names_the_line(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_text('{"prediction": 1}\n{"predi')
    with pytest.raises(InputError, match=r"dev\.jsonl, line 2: should be JSON"):
        predictions.read(str(path))
    path.write_text('{"id": 1}\n')
    with pytest.raises(InputError, match=r'line 1: should be an object with "prediction"'):
        predictions.read(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        predictions.read(str(tmp_path / "absent.jsonl"))


def test_largest_classification_errors_are_the_surest():
    text = predictions.largest_errors(
        predicted(CLASSES, TEXTS, [1, 1, 0, 0], {"logits": LOGITS}), 5
    )
    assert "2 of 2 among 4 examples" in text
    assert text.index("## 1. 2") < text.index("## 2. 1")
    assert "Predicted **bad** with probability 0.990; it is **good**." in text
    assert "> dull\n\n> and long" in text
    only = predictions.largest_errors(
        predicted(CLASSES, TEXTS, [1, 1, 0, 0], {"logits": LOGITS}), 1
    )
    assert "## 2." not in only


def test_largest_regression_errors():
    examples = [TextExample(str(i), "x", "y", label) for i, label in enumerate([1.0, 5.0, 3.0])]
    text = predictions.largest_errors(predicted(SCORES, examples, [1.5, 1.0, 3.0]), 9)
    assert [line for line in text.splitlines() if line.startswith("##")] == ["## 1. 1", "## 2. 0"]


def test_largest_tagging_errors():
    text = predictions.largest_errors(predicted(TAGS, SENTENCES, [(0, 2, 1), (0, 2)]), 9)
    assert text.index("## 1. s0") < text.index("## 2. s1")
    assert "2 of 3 tags wrong." in text
    assert "> the **dog** [VERB, not NOUN] **runs** [NOUN, not VERB]" in text


def test_largest_span_errors_have_no_word_in_common():
    examples = [question("q0", "Ada"), question("q1", "Bob"), question("q2"), question("q3", "Ada")]
    answers = [span("Bob", -3.0), span("met Bob"), span("Bob", -0.5), span("Ada", -1.0, 5.0)]
    text = predictions.largest_errors(predicted(QUESTIONS, examples, answers), 9)
    heads = [line for line in text.splitlines() if line.startswith("##")]
    assert heads == ["## 1. q3", "## 2. q2", "## 3. q0"]  # log probabilities -0.007, -0.5, -3
    assert "Predicted **no answer**, -0.01; it is **Ada**." in text
    assert "Predicted **Bob**, -0.50; it is **no answer**." in text


@pytest.mark.parametrize(("threshold", "names"), [(9.0, ["q2", "q0"]), (-10.0, ["q0", "q1", "q3"])])
def test_largest_span_errors_at_another_threshold(threshold, names):
    examples = [question("q0", "Ada"), question("q1", "Bob"), question("q2"), question("q3", "Ada")]
    answers = [span("Bob", -3.0), span("met Bob"), span("Bob", -0.5), span("Ada", -1.0, 5.0)]
    text = predictions.largest_errors(
        predicted(QUESTIONS, examples, answers, qa_na_threshold=threshold), 9
    )
    heads = [line.split(". ")[1] for line in text.splitlines() if line.startswith("##")]
    assert sorted(heads) == sorted(names)
    assert ("**no answer**," in text) == (threshold < 0)  # as a prediction


def draw(path, task, examples, answers):
    return task.plugin.draw(predicted(task, examples, answers), path)


def test_pictures_of_every_kind(tmp_path):
    pairs = [TextExample(str(i), "x", "y", label) for i, label in enumerate([1.0, 5.0, 3.0])]
    assert draw(str(tmp_path / "c.png"), CLASSES, TEXTS, [1, 1, 0, 0])
    assert draw(str(tmp_path / "r.png"), SCORES, pairs, [1.0, float("nan"), 2.0])
    assert draw(str(tmp_path / "t.png"), TAGS, SENTENCES, [(0, 2, 1), (0, 2)])
    assert not draw(str(tmp_path / "s.png"), QUESTIONS, [question("q")], [span("")])
    unlabelled = [TextExample("0", "x", None, None)]
    assert not draw(str(tmp_path / "u.png"), CLASSES, unlabelled, [0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.png", "r.png", "t.png"]


def test_confusion_matrix_of_fifty_labels_is_large_enough_to_read(tmp_path):
    from matplotlib import image

    labels = [f"label {i}" for i in range(50)]
    path = str(tmp_path / "many.png")
    pictures.confusion_matrix(path, labels, list(range(50)), [0] * 50)
    height = image.imread(path).shape[0]
    assert height > 50 * 20  # pixels of a row

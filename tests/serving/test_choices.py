"""Multiple choice in the graph: the choices of fine-tuning; requests and files of any options."""

import json

import numpy as np
import pytest
import tensorflow as tf

from finetune.kinds.multiple_choice import ChoiceExample
from serving.client import Client
from serving.load import load, signatures
from serving.records import Inputs, Record, read_records, source
from tests.serving.support import evaluated, fine_tuned, task

WORDS = ["the", "city", "born", "ab", "1995", "北京", "\x07", "_"]


@pytest.fixture(scope="module")
def examples():
    draw = np.random.default_rng(0)

    def text(most):
        return " ".join(draw.choice(WORDS, draw.integers(1, most)))

    return [
        ChoiceExample(str(i), text(40), "" if i % 7 == 0 else text(8),
                      tuple(text(6) for _ in range(2 + i % 2)), None)
        for i in range(30)
    ]  # fmt: skip


def padded(rows, width):
    return tf.constant([[*row, *[""] * (width - len(row))] for row in rows])


AS_XLNET = {"question_apart": False, "fill_blank": True}


@pytest.mark.parametrize(
    "settings",
    [AS_XLNET, pytest.param({}, marks=pytest.mark.slow)],  # a graph each
    ids=["xlnet", "default"],
)
def test_the_choices_are_those_of_fine_tuning(tmp_path, examples, settings):
    own = task("multiple_choice")
    settings = {**settings, "max_qa_length": 12}
    objective, hparams, words = fine_tuned(tmp_path, own, hparams=settings, num_hidden_layers=1)
    encoded, outputs, expected = evaluated(objective, own, examples, words, hparams)
    served = signatures(load(str(tmp_path)))
    assert served["choose"] is served["serving_default"]
    choose = served["choose"].trace()
    columns = {name: tf.constant([getattr(x, name) for x in examples])
               for name in ("context", "question")}  # fmt: skip
    for width in (3, 5):
        options = padded([x.options for x in examples], width)
        found = {key: value.numpy() for key, value in choose(**columns, options=options).items()}
        assert found["choice"].tolist() == expected
        assert len(set(expected)) > 1
        assert found["num_options"].tolist() == [len(x.options) for x in examples]
        chosen = [x.options[place].encode() for x, place in zip(examples, expected)]
        assert found["option"].tolist() == chosen
        assert found["truncated"].sum() == encoded.truncated > 0
        scores = outputs["score"].reshape(-1, 3)
        present = encoded.sequences["present"].reshape(-1, 3) > 0
        np.testing.assert_allclose(found["scores"][:, :3][present], scores[present], atol=2e-5)
        assert (found["probabilities"][:, :3][~present] == 0).all()
        assert (found["probabilities"][:, 3:] == 0).all()
        np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1, rtol=1e-5)
    # No option at all, also in the shape; one of nothing between two others.
    for options, choice in (([["", ""]], -1), (np.zeros([1, 0], str), -1), ([["", "ab"]], 1)):
        row = choose(context=tf.constant(["a"]), question=tf.constant(["b"]),
                     options=tf.constant(options, tf.string))  # fmt: skip
        assert row["choice"].numpy().tolist() == [choice]
        assert np.isfinite(row["probabilities"].numpy()).all()
    none = choose(context=tf.zeros([0], tf.string), question=tf.zeros([0], tf.string),
                  options=tf.zeros([0, 2], tf.string))  # fmt: skip
    assert none["choice"].shape == [0]


def test_a_task_without_questions_asks_for_none(tmp_path):
    columns = {"context": "story", "options": "ends", "label": "right"}
    own = task("multiple_choice")
    own = type(own)(**{**vars(own), "columns": columns})
    fine_tuned(tmp_path, own, num_hidden_layers=1)
    found = signatures(load(str(tmp_path)))
    assert list(found["choose"].inputs) == ["context", "options"]
    answer = found["choose"].trace()(context=tf.constant(["a"]), options=tf.constant([["a", "b"]]))
    assert answer["choice"].shape == [1]


def values(content, file_format, **declared):
    own = {**task("multiple_choice").to_json(), **declared}
    inputs = Inputs(["context", "question", "options"], own, ["options"])
    lines = content.encode().splitlines(keepends=True)
    return [row.values for row in read_records(source("my.file", lines, file_format), inputs)]


def test_files_hold_lists_or_a_column_for_each_option():
    expected = {"context": "c", "question": "q", "options": ["x", "y"]}
    row = {"story": "c", "asked": "q", "ends": ["x", "y"]}
    assert values(json.dumps(row), "jsonl") == [expected]
    columns = {"context": "c", "question": "q", "options": ["o1", "o2", "o3"], "label": "y"}
    assert values("q,c,o1,o2,o3\nq,c,x,y,\n", "csv", columns=columns) == [expected]
    numbered = {"context": 4, "question": 0, "options": [1, 2, 3], "label": 5}
    table = {"columns": numbered, "header": False}
    assert values("q,x,y,,c,A\n", "csv", **table) == [expected]


@pytest.mark.slow  # needs an export
def test_the_client_names_the_chosen_option(saved):
    record = {"context": "the city", "question": "", "options": ["ab", "born", "1995", "the"]}
    rows = [
        list(Client.of(saved["multiple_choice"], name).answers(records(record), 4))
        for name in ("choose", "serving_default")
    ]
    assert rows[0] == rows[1]
    ((row,), _) = rows
    assert list(row["probabilities"]) == ["A", "B", "C", "3"]  # more options than in training
    place = list(row["probabilities"]).index(row["prediction"])
    assert row["option"] == record["options"][place]
    assert row["truncated"] is False


def records(*rows):
    return [Record(f"line {i}", str(i), row) for i, row in enumerate(rows)]

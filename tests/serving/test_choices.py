"""Multiple choice in the graph: the choices of fine-tuning; requests and files of any options."""

import numpy as np
import pytest
import tensorflow as tf

from convbert.finetune.kinds.multiple_choice import ChoiceExample
from convbert.serving.load import load_model_directory, signatures
from tests.serving.support import evaluated, fine_tuned, padded, task

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
    served = signatures(load_model_directory(str(tmp_path)))
    choose = served["serving_default"].trace()
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


def test_a_task_without_questions_asks_for_none(tmp_path):
    columns = {"context": "story", "options": "ends", "label": "right"}
    fine_tuned(tmp_path, task("multiple_choice", columns=columns), num_hidden_layers=1)
    found = signatures(load_model_directory(str(tmp_path)))
    assert list(found["serving_default"].inputs) == ["context", "options"]
    rows = {"context": tf.constant(["a"]), "options": tf.constant([["a", "b"]])}
    answer = found["serving_default"].trace()(**rows)
    assert answer["choice"].shape == [1]

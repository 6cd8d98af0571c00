"""`convbert.load` and its methods: as exported models answer, of rows in every form."""

import copy
import itertools
import pathlib
import pickle

import numpy as np
import pandas as pd
import pytest

import convbert
from convbert.common.errors import InputError
from convbert.serving.description import DESCRIPTION

TEXTS = ["the city was born", "Café", "", "who? " * 9, "the 北京 [MASK] in [MASK]", "1995"]


def test_forms_of_texts_have_one_answer(saved):
    model = saved.model("classification")
    expected = model.predict(TEXTS).probabilities
    frame = pd.DataFrame({"review": TEXTS, "other": 1})
    assert copy.copy(model.predict(TEXTS)).label.tolist() == model.predict(TEXTS).label.tolist()
    assert len(pickle.loads(pickle.dumps(model.predict(TEXTS)))) == 6
    for form in (np.array(TEXTS), pd.Series(TEXTS, index=range(9, 15)), iter(TEXTS), frame):
        np.testing.assert_array_equal(model.predict(form).probabilities, expected)
    one = model.predict(TEXTS[0])
    assert one.label in model.labels
    assert one.probabilities.shape == (3,)
    np.testing.assert_allclose(one.probabilities, expected[0], atol=1e-6)
    pair = saved.model("pairs")
    assert pair.inputs() == ["text", "text_pair"]
    both = [(a, b) for a, b in itertools.pairwise(TEXTS)]
    expected = pair.predict(both).scores
    frame = pd.DataFrame(both, columns=["review", "reply"])
    np.testing.assert_array_equal(pair.predict(frame).scores, expected)
    np.testing.assert_allclose(pair.predict(both[0]).scores, expected[0], atol=1e-6)


def test_words_and_texts_of_a_tagger(saved):
    model = saved.model("tagging")
    words = [["the", "city"], ["Café"], ["who?"] * 9]
    expected = model.predict([" ".join(item) for item in words])
    forms = [words, iter(words), pd.Series(words), pd.DataFrame({"tokens": words})]
    for form in (*forms, [{"words": item} for item in words]):
        found = model.predict(form)
        assert [row.tolist() for row in found.words] == words
        assert [row.tolist() for row in found.tags] == [row.tolist() for row in expected.tags]


@pytest.mark.slow  # exports a model
def test_lists_of_options_may_be_columns_of_arrays(saved):
    model, options = saved.model("multiple_choice"), [["in"], ["Café", "1995"], ["a", "b", "c"]]
    given = [{"context": "the city", "question": "who?", "options": own} for own in options]
    frame = pd.DataFrame(given).assign(options=[np.array(row["options"]) for row in given])
    expected = model.predict(given)
    assert [len(row) for row in expected.probabilities] == [len(r["options"]) for r in given]
    assert model.predict(frame).choice.tolist() == expected.choice.tolist()


def test_a_pretrained_model(saved):
    model = saved.model("pretraining")
    mean, pooled = (model.embed(TEXTS, pooling=name) for name in ("mean", "pooled"))
    assert mean.shape == pooled.shape == (6, model.description["encoder"]["hidden_size"])
    assert mean.dtype == np.float32
    vectors = model.ask("embeddings", TEXTS)
    for i, tokens in enumerate(vectors.tokens):
        assert len(tokens) == len(vectors.pieces[i])
        np.testing.assert_allclose(tokens.mean(0), mean[i], atol=1e-5)
        np.testing.assert_allclose(tokens[0], pooled[i], atol=1e-5)
    np.testing.assert_allclose(model.embed(TEXTS[3]), mean[3], atol=1e-5)
    with pytest.raises(InputError):  # not in an exported model
        model.embed(TEXTS, pooling="words")
    assert [len(row) for row in model.fill_mask(TEXTS).candidates] == [0, 0, 0, 0, 2, 0]
    assert model.fill_mask("the [MASK]").candidates.shape == (1, 10)
    replaced = model.replaced(TEXTS)
    assert [len(row) for row in replaced.probabilities] == [len(row) for row in replaced.pieces]
    scores = model.score(TEXTS)
    assert scores.num_words.tolist() == [len(text.split()) for text in TEXTS]
    assert scores.num_pieces.tolist() == [len(row) - 2 for row in replaced.pieces]


TWICE = pd.DataFrame([["a", "b"]], columns=["review"] * 2)
WRONG_FORMS = {
    "classification": [[], 3, b"the", ["the", float("nan")], ["the", ("the", "city")], TWICE],
    "pairs": [["the", "city"], [("the", "city", "was")], [{"text": "the"}]],
    "tagging": [[["the"], "city"]],
    "pretraining": [TEXTS],
}
WRONG_FORMS["classification"].append(["a\ud800b"])


@pytest.mark.parametrize(
    ("kind", "texts"), [(kind, texts) for kind, forms in WRONG_FORMS.items() for texts in forms]
)
def test_texts_of_wrong_forms_are_errors(saved, kind, texts):
    with pytest.raises(InputError):
        saved.model(kind).predict(texts)


@pytest.mark.parametrize(
    ("kind", "method", "arguments", "named"),
    [
        ("classification", "evaluate", [3], {}),
        ("classification", "fill_mask", [TEXTS], {}),
        ("classification", "embed", [TEXTS], {"pooling": "max"}),
        ("classification", "ask", ["none", TEXTS], {}),
        ("classification", "ask", ["token_ids", TEXTS], {}),
        ("classification", "ask", ["serving_default", TEXTS], {"only": []}),
        ("classification", "ask", ["serving_default", TEXTS], {"only": ["labels"]}),
        ("pretraining", "continue_text", [TEXTS], {}),
        ("pretraining", "evaluate", [pd.DataFrame({"text": TEXTS, "label": "good"})], {}),
    ],
)
def test_what_cannot_be_asked_is_an_error(saved, kind, method, arguments, named):
    with pytest.raises(InputError):
        getattr(saved.model(kind), method)(*arguments, **named)


def test_what_is_no_model_is_an_error(saved, tmp_path):
    for path in (tmp_path, tmp_path / "none", tmp_path / "none.tflite", None, 3):
        with pytest.raises(InputError):
            convbert.load(path)
    with pytest.raises(InputError):
        convbert.load(saved["classification"], max_seq_length=8)
    whole = pathlib.Path(saved["classification"], DESCRIPTION)
    (tmp_path / DESCRIPTION).parent.mkdir()
    for content in ("{}", "[]", "{", whole.read_text()):
        (tmp_path / DESCRIPTION).write_text(content)
        with pytest.raises(InputError):
            convbert.load(tmp_path)
    for content in (b"", b"TFL3 and nothing else"):
        (tmp_path / "model.tflite").write_bytes(content)
        with pytest.raises(InputError):
            convbert.load(tmp_path / "model.tflite")

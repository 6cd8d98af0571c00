"""`convbert.load` and its methods, of rows in every form; the models that come with the project."""

import collections
import copy
import itertools
import json
import pathlib
import pickle
import random
import textwrap

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tf_keras

import convbert
from convbert.common.errors import InputError
from convbert.data.readers.documentation import InstalledDocumentation
from convbert.examples.quickstart.word_order import labelled, split_passages
from convbert.finetune.load import load_fine_tuned
from convbert.finetune.results import choose_run, read_results
from convbert.pretrain.load import load_encoder
from convbert.serving.description import DESCRIPTION, RELEASED
from convbert.serving.load import load_model_directory
from tests.command_support import ROOT
from tests.damage_support import cut, delete, each, edit
from tests.finetune.kinds_support import rejects
from tests.serving.support import fine_tuned, pretrained, save, task

TEXTS = ["the city was born", "Café", "", "who? " * 9, "the 北京 [MASK] in [MASK]", "1995"]


def test_the_encoder_in_a_keras_model(tmp_path):
    """The code of docs/python.md: every weight of the encoder learns."""
    pretrained(tmp_path / "model", objective="masked_lm")
    _, after = (ROOT / "docs/python.md").read_text().split("## In your own Keras model")
    lines = [line for line in after.partition("\n##")[0].splitlines() if line.startswith("    ")]
    code = textwrap.dedent("\n".join(lines)).replace("my_data/models/mine", f"{tmp_path}/model")
    found = {"texts": TEXTS * 4, "numbers": np.arange(24.0)}
    exec(code.replace(":126", ":22"), found)
    before = load_encoder(str(tmp_path / "model"))
    for old, new in zip(before.trainable_variables, found["encoder"].trainable_variables):
        assert not np.array_equal(old, new), new.name


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


def test_the_precision_of_the_program_is_kept(saved):
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    encoder, *_ = load_model_directory(saved.directory("classification")).networks
    assert encoder.compute_dtype == "float32"
    assert tf_keras.mixed_precision.global_policy().name == "mixed_bfloat16"


def test_a_pretrained_model(saved):
    model = saved.model("pretraining")
    mean, pooled = (model.embed(TEXTS, pooling=name) for name in ("mean", "pooled"))
    assert mean.shape == pooled.shape == (6, model.description["encoder"]["hidden_size"])
    assert mean.dtype == np.float32
    vectors = model.ask("embeddings", TEXTS)
    np.testing.assert_allclose([x.mean(0) for x in vectors.tokens], mean, atol=1e-5)
    np.testing.assert_allclose([x[0] for x in vectors.tokens], pooled, atol=1e-5)
    assert [*map(len, vectors.tokens)] == [*map(len, vectors.pieces)]
    np.testing.assert_allclose(model.embed(TEXTS[3]), mean[3], atol=1e-5)
    own = model.similarity(mean, mean)
    for form in (pd.Series([*mean], index=range(5, 11)), (*mean,), mean.tolist()):
        np.testing.assert_allclose(model.similarity(form, mean), own, atol=1e-6)
    assert model.search([[1, 2, 3]], [[1, 0, 0], [1, 2, 3]], 1).indices.tolist() == [[1]]
    with pytest.raises(InputError):
        model.similarity([["a", "b"], ["c"]], TEXTS)
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


# One of the packages that they were trained on; reading all takes ten times as long.
PACKAGE, HELDOUT_FRACTION, SEED = "numpy", 0.02, 0


def test_released_models_are_small_and_have_learned():
    """Vectors of similar texts are similar; the replaced word is found."""
    files = list(RELEASED.glob("*.tflite"))
    assert {file.stem for file in files} == {"tiny", "tiny-word-order"}
    assert sum(file.stat().st_size for file in files) <= 4 * 2**20
    tiny = convbert.load("tiny")
    texts = ["Returns the sum of all elements.", "Returns the mean of all elements."]
    texts += ["The colour of the line in the figure."]
    vectors = tiny.embed(texts)
    assert vectors.shape == (3, 128)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert unit[0] @ unit[1] > max(unit[0] @ unit[2], unit[1] @ unit[2])
    answer = tiny.replaced("Returns the sum of all banana of the array.")
    place = int(np.argmax(answer.probabilities))
    assert list(answer.pieces[6:9]) == ["ba", "##na", "##na"]
    assert 6 <= place < 9


def test_word_order_of_heldout_passages():
    """Of documents that the models were not trained on; half of them are disturbed."""
    corpus = InstalledDocumentation(PACKAGE)
    documents = [d for unit in corpus.units for d in corpus.documents(unit, collections.Counter())]
    passages = split_passages(documents, HELDOUT_FRACTION, SEED)["dev"]
    heldout = labelled(passages, 100, random.Random(1))
    found = convbert.load("tiny-word-order").predict([row["passage"] for row in heldout])
    right = [label == row["label"] for label, row in zip(found.label, heldout)]
    assert len(right) == 100
    assert np.mean(right) > 0.8


def write_result(folder, score, trial, init="pretrained", **more):
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    result = {"task": "own", "setting": {}, "trial": trial, "init": init, **more}
    result = {"main_metric": "accuracy", "scores": {"dev": {"accuracy": score}}, **result}
    (folder / "result.json").write_text(json.dumps(result))


def test_of_a_folder_of_runs_the_highest_score_is_taken(tmp_path, capsys):
    """Of all runs: of any setting, from random weights, too; a folder may be called trial_x."""
    tmp_path /= "trial_x"
    for setting, scores in (("lr1", [70, 72, 71]), ("lr2", [50, 74, 60])):
        for trial, score in enumerate(scores):
            write_result(tmp_path / f"a/{setting}/trial_{trial}", score, trial)
    (tmp_path / "a/lr2/trial_3").mkdir()
    (tmp_path / "a/lr2/trial_3/task.json").touch()
    assert read_results(str(tmp_path))[1] == [str(tmp_path / "a/lr2/trial_3")]
    assert choose_run(str(tmp_path))["folder"] == str(tmp_path / "a/lr2/trial_1")
    write_result(tmp_path / "a/random/trial_0", 74.2, 0, "random")
    capsys.readouterr()
    record = choose_run(str(tmp_path))
    assert record["folder"] == str(tmp_path / "a/random/trial_0")
    assert (record["init"], record["score"], record["metric"]) == ("random", 74.2, "accuracy")
    said = capsys.readouterr()
    assert "a/random/trial_0" in said.err
    assert said.out == ""  # where commands print answers


@pytest.mark.parametrize(
    "other",
    [
        {"task": "other"},
        {"model": "other"},
        {"main_metric": "f1", "scores": {"dev": {"f1": 50}}},
        {"main_metric": "accurac"},  # without a score
        {"scores": {"dev_b": {"accuracy": 50}}},
        {"hparams": {"task": {"labels": ["x", "y"]}}},  # tables are all called `table`
    ],
)
def test_runs_that_do_not_compare_are_named(tmp_path, other):
    write_result(tmp_path / "a/x/trial_0", 99, 0)
    write_result(tmp_path / "a/y/trial_0", 98, 0, **other)
    with rejects(tmp_path):
        choose_run(str(tmp_path))


def spoil_weights(folder):
    objective = load_fine_tuned(str(folder)).objective
    objective.head.dense.bias.assign([0.0, np.nan, np.inf])
    save(folder, tf.train.Checkpoint(objective=objective), "weights")


@pytest.mark.parametrize(
    ("change", "length", "named"),
    [
        (edit("tokenizer_config.json", do_lower_case=False), None, "tokenizer_config.json"),
        (each("checkpoints/*.data*", delete), None, "weights-7"),
        (spoil_weights, None, "dense/bias"),
        (edit("config.json", hidden_act="relu"), None, "config.json"),
        (edit("task.json", labels=["b", "a"]), None, "task.json"),
        (each("none", delete), 65, "max_seq_length"),
    ],
)
def test_runs_that_cannot_be_served(tmp_path, change, length, named, capsys):
    fine_tuned(tmp_path, task("classification"), num_hidden_layers=1)
    change(tmp_path)
    (tmp_path / "metrics.jsonl").touch()  # of training here, which has not come to an end
    with rejects(named):
        load_model_directory(str(tmp_path), max_seq_length=length)
    assert f"warning: {tmp_path}" in capsys.readouterr().err


def test_pre_trained_models_that_cannot_be_served(tmp_path):
    pretrained(tmp_path)
    for folder, length in (("nothing", None), ("checkpoints", None), (".", 65)):
        with rejects():
            load_model_directory(str(tmp_path / folder), max_seq_length=length)
    each("checkpoints/*.index", cut)(tmp_path)
    with rejects():
        load_model_directory(str(tmp_path))

"""Question answering in the graph: the answers of finetune/squad, to the character."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from data.tokenization import Tokenizer
from finetune.squad import alignment as eager
from finetune.squad.examples import QuestionExample, read_squad
from finetune.squad.features import encode_questions
from finetune.task_data import Split
from finetune.trial import predict
from serving import alignment
from serving.load import load
from serving.signatures import signatures
from serving.spans import layout_windows
from serving.text import TextLayout
from tests.finetune.squad_support import CONTEXT, LONG, small_file, vocabulary
from tests.serving.support import fine_tuned, rows_of, task
from training.distribution import create_strategy

SWITCHES = [(True, True), (True, False), (False, True), (False, False)]
LENGTHS = {"max_seq_length": 48, "max_query_length": 16, "doc_stride": 8}
VARIANTS = {  # thresholds near the median: some questions are answered, some are not
    "joint": (True, {"qa_na_threshold": -2.86}),
    "version 1": (False, {"max_seq_length": 64, "max_query_length": 8, "doc_stride": 50}),
    "without a classifier": (True, {"answerable_classifier": False, "qa_na_threshold": -0.377}),
    "independent ends": (
        True,
        {"joint_prediction": False, "max_answer_length": 2, "qa_na_threshold": -1.12},
    ),
    "small beam": (
        True,
        {"beam_size": 5, "answerable_uses_start_logits": False, "qa_na_threshold": 0.2705},
    ),
}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    path = small_file(tmp_path_factory.mktemp("squad") / "dev.json")
    found = read_squad(path, training=False)[::2]
    contexts = ("", "  ", "\x07", LONG[:200], "é" * 60, CONTEXT * 3)
    questions = ("", "who?", "what was born in the city " * 4)
    for context in contexts:
        found += [QuestionExample("", question, context, (), None, False) for question in questions]
    return found


def ask(signature, rows):
    inputs = {
        name: tf.constant([getattr(row, name) for row in rows]) for name in ("question", "context")
    }
    return {name: value.numpy() for name, value in signature(**inputs).items()}


@pytest.mark.parametrize(("lower", "strip"), SWITCHES)
def test_places_of_pieces(lower, strip):
    """Against the tables by code point: every character of Unicode beside every kind."""
    tokenizer = Tokenizer(vocabulary(do_lower_case=lower, strip_accents=strip))
    characters = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000)
    texts = [CONTEXT, "", LONG, "   ", "ΟΔΟΣ ΟΔΟΣ. İİ", "a\u0301\u0300 e\u0301", characters]
    texts.append("".join(f"a{c}b\u0301{c} " for c in characters[:0x3000]))
    expected = eager.align(texts, tokenizer)
    found = tf.function(lambda text: alignment.align(text, tokenizer))(tf.constant(texts))
    assert found.ids.row_lengths().numpy().tolist() == [len(item.ids) for item in expected]
    for name in ("ids", "char_start", "char_end"):
        values = np.concatenate([getattr(item, name) for item in expected])
        np.testing.assert_array_equal(getattr(found, name).values, values)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Name of a variant -> the network, its signatures by name, task, hparams, vocabulary."""
    found = {}
    for number, (name, (version_2, changes)) in enumerate(VARIANTS.items()):
        folder = tmp_path_factory.mktemp("spans")
        own = task("span", version_2=version_2)
        objective, hparams, words = fine_tuned(
            folder, own, seed=number, hparams={**LENGTHS, **changes}, num_hidden_layers=1
        )
        asked = signatures(load(str(folder)))
        traced = functools.cache(lambda which, asked=asked: asked[which].trace())
        found[name] = (objective, traced, own, hparams, words)
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_the_answers_are_those_of_fine_tuning(models, examples, name):
    objective, loaded, own, hparams, words = models[name]
    encoded = own.plugin.encode(own, examples, words, hparams)
    strategy, split = create_strategy("one_device"), Split(examples, encoded)
    outputs = predict(objective, own, split, batch_size=8, hparams=hparams, strategy=strategy)
    expected = own.plugin.answers(own, examples, encoded, outputs, hparams)
    found = ask(loaded("serving_default"), examples)
    answered = 0
    for index, (example, answer) in enumerate(zip(examples, expected)):
        text, span = answer.text, (answer.start, answer.end)
        if not answer.nbest or (own.version_2 and answer.null_score > hparams.qa_na_threshold):
            text, span = "", (-1, -1)
        assert found["answer"][index].decode() == text
        assert (found["start"][index], found["end"][index]) == span
        assert text == example.context[slice(*span)] or not text
        answered += bool(text)
    scores = [answer.score for answer in expected]
    np.testing.assert_allclose(found["score"], scores, rtol=0, atol=1e-5)
    nulls = [answer.null_score for answer in expected]
    np.testing.assert_allclose(found["null_score"], nulls, rtol=0, atol=1e-5)
    assert found["truncated"].sum() == encoded.truncated
    assert answered == 23 if name == "version 1" else 5 < answered < 23
    assert len(set(found["answer"].tolist())) > 2


def test_windows(models, examples):
    """Rows, places and the best window of each token, as finetune/squad/features.py has them."""
    *_, hparams, words = models["joint"]
    lengths = {name: getattr(hparams, name) for name in LENGTHS}
    longer = QuestionExample("", "who?", "the " * 500, (), None, False)
    rows = [*examples, longer]
    expected = encode_questions(rows, words, **lengths)
    network = types.SimpleNamespace(
        layout=TextLayout(words, hparams.max_seq_length),
        model=types.SimpleNamespace(hparams=hparams),
    )
    questions = tf.constant([row.question for row in rows])
    contexts = tf.constant([row.context for row in rows])
    windows = layout_windows(network, questions, contexts)
    np.testing.assert_array_equal(windows.example, expected.rows["example"])
    mask = windows.features["input_mask"].numpy() > 0
    np.testing.assert_array_equal(mask.sum(1), expected.lengths)
    columns = {
        "input_ids": windows.features["input_ids"],
        "segment_ids": windows.features["segment_ids"],
        "char_start": windows.char_start,
        "char_end": windows.char_end,
        "max_context": windows.max_context,
    }
    for name, values in columns.items():
        np.testing.assert_array_equal(values.numpy()[mask], expected.tokens[name], name)
        assert not values.numpy()[~mask].any()


@pytest.mark.parametrize("name", ["joint", "without a classifier"])
def test_answers_do_not_depend_on_the_batch(models, examples, name):
    _, loaded, *_ = models[name]
    signature = loaded("serving_default")
    together = ask(signature, examples)
    for index in range(0, len(examples), 3):
        for key, values in ask(signature, examples[index : index + 1]).items():
            expected = together[key][index]
            if values.dtype == np.float32:
                np.testing.assert_allclose(values[0], expected, rtol=0, atol=1e-5)
            else:
                assert values[0] == expected, (key, index)


def test_no_input_is_too_bad(models):
    _, loaded, *_ = models["version 1"]
    signature = loaded("serving_default")
    texts = [
        b"",
        b"\x00\x01",
        b"\xff\xfe\xc3(",
        b"the city " * 11_000,
        b"who\xff was \xe5\x8c born",
    ]
    answers = signature(tf.constant(texts), tf.constant(texts))
    found = {name: value.numpy() for name, value in answers.items()}
    assert found["answer"][:2].tolist() == [b"", b""]
    assert found["start"][:2].tolist() == found["end"][:2].tolist() == [-1, -1]
    assert found["score"][:2].tolist() == [0, 0]
    assert found["truncated"].tolist() == [False, False, False, True, False]
    assert np.isfinite(found["score"]).all()
    assert np.isfinite(found["null_score"]).all()
    # Places count the context with U+FFFD for bytes that are not UTF-8, as Python's "replace" does.
    for index in (2, 3, 4):
        start, end = found["start"][index], found["end"][index]
        context = texts[index].decode(errors="replace")
        assert found["answer"][index].decode() == context[start:end] != ""
    empty = tf.constant([], tf.string)
    assert {len(v) for v in signature(empty, empty).values()} == {0}


def test_token_ids_answer_with_the_heads_predictions(models, examples):
    objective, loaded, own, hparams, words = models["joint"]
    encoded = own.plugin.encode(own, examples[:4], words, hparams)
    features = rows_of(encoded, range(len(encoded)), hparams.max_seq_length)
    found = loaded("token_ids")(*features.values())
    for name, expected in objective.predict(features).items():
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5)

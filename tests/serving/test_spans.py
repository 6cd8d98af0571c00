"""Question answering in the graph: the answers of finetune/squad, to the character."""

import numpy as np
import pytest
import tensorflow as tf

from convbert.finetune.kinds.span import QuestionExample
from convbert.serving.load import load_model_directory, signatures
from tests.finetune.squad_support import CONTEXT, LONG, read_squad, small_file
from tests.model_support import slow_but
from tests.serving.support import evaluated, fine_tuned, task

LENGTHS = {"max_seq_length": 48, "max_query_length": 16, "doc_stride": 8}
VARIANTS = {  # thresholds near the median: some questions are answered, some are not
    "joint": (True, {"qa_na_threshold": -2.86}),
    "version 1": (False, {"max_seq_length": 64, "max_query_length": 8, "doc_stride": 50}),
    "without a classifier": (True, {"answerable_classifier": False, "qa_na_threshold": -0.377}),
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
    names = ("question", "context")
    inputs = {name: tf.constant([getattr(row, name) for row in rows]) for name in names}
    return {name: value.numpy() for name, value in signature(**inputs).items()}


# The others trace as long again, each.
@pytest.mark.parametrize("name", slow_but(["joint"], VARIANTS))
def test_the_answers_are_those_of_fine_tuning(tmp_path, examples, name):
    version_2, changes = VARIANTS[name]
    own, seed = task("span", version_2=version_2), list(VARIANTS).index(name)
    settings = {"hparams": {**LENGTHS, **changes}, "num_hidden_layers": 1}
    objective, hparams, words = fine_tuned(tmp_path, own, seed=seed, **settings)
    asked = signatures(load_model_directory(str(tmp_path)))["serving_default"].trace()
    encoded, _, expected = evaluated(objective, own, examples, words, hparams)
    found = ask(asked, examples)
    answered = 0
    for index, (example, answer) in enumerate(zip(examples, expected)):
        text, span = answer.text, (answer.start, answer.end)
        if not answer.text or (own.version_2 and answer.null_score > hparams.qa_na_threshold):
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


def test_places_count_what_replaces_wrong_bytes(saved):
    signature = saved.loaded("span").signatures["serving_default"]
    texts = [b"", b"\x00\x01", b"\xff\xfe\xc3(", b"the city " * 11_000]
    texts += [b"who\xff was \xe5\x8c born"]
    answers = signature(question=tf.constant(texts), context=tf.constant(texts))
    found = {name: value.numpy() for name, value in answers.items()}
    assert found["answer"][:2].tolist() == [b"", b""]
    assert found["start"][:2].tolist() == found["end"][:2].tolist() == [-1, -1]
    assert found["score"][:2].tolist() == [0, 0]
    assert found["truncated"].tolist() == [False, False, False, True, False]
    # Places count the context with U+FFFD for bytes that are not UTF-8, as Python's "replace" does.
    for index in (2, 3, 4):
        start, end = found["start"][index], found["end"][index]
        context = texts[index].decode(errors="replace")
        assert found["answer"][index].decode() == context[start:end] != ""

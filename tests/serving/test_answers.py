"""Tags, spans and choices in the graph are those of fine-tuning."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from convbert.finetune.kinds.multiple_choice import ChoiceExample
from convbert.finetune.kinds.span import QuestionExample
from convbert.finetune.kinds.tagging import TaggedExample
from convbert.model.heads.linear_chain import negative_log_likelihood, viterbi
from convbert.serving.load import load_model_directory, signatures
from tests.finetune.squad_support import CONTEXT, LONG, read_squad, small_file
from tests.model_support import slow_but
from tests.serving.support import evaluated, fine_tuned, padded, task


@pytest.fixture(scope="module")
def sentences():
    """Of every length around the limit, with words of no pieces and words longer than a row."""
    draw = np.random.default_rng(0)
    kinds = ["the", "city", "born", "ab", "xyzab", "1995", "\x07", "abc-def", "北京", "\u200b"]
    found = [tuple(draw.choice(kinds, n).tolist()) for n in (*range(1, 40), 200)]
    found += [("abcdefghij" * 4, "the"), ("the", "abcdefghij" * 9, "abcdefghij" * 9), ("\x01",)]
    return [TaggedExample(str(i), words, None) for i, words in enumerate(found)]


def rows_of_answer(answer):
    """(words, tags) of each sentence, without the padding."""
    words, tags = (
        [[item.decode() for item in row] for row in answer[name].numpy()]
        for name in ("words", "tags")
    )
    found = []
    for word, tag, count in zip(words, tags, answer["num_words"].numpy()):
        assert not any(word[count:])
        assert not any(tag[count:])
        found.append((word[:count], tag[:count]))
    return found


def test_the_tags_are_those_of_fine_tuning(saved, sentences):
    (objective, hparams, words), own = saved.network("tagging"), task("tagging")
    asked = saved.loaded("tagging").signatures
    encoded, _, tags = evaluated(objective, own, sentences, words, hparams)
    expected = [[own.labels[tag] for tag in row] for row in tags]
    text = asked["serving_default"](text=tf.constant([" ".join(x.words) for x in sentences]))
    longest = max(len(item.words) for item in sentences)
    listed = asked["words"](words=padded([item.words for item in sentences], longest + 2))
    assert listed["tags"].shape == [len(sentences), longest + 2]
    for answer in (text, listed):
        for (words, tags), item, tagged in zip(rows_of_answer(answer), sentences, expected):
            assert words == list(item.words)
            assert tags == tagged
        assert answer["truncated"].numpy().sum() == encoded.truncated > 10
    counts = collections.Counter(tag for tags in expected for tag in tags)
    assert len(counts) > 1
    assert min(counts.values()) > 30


def test_words_of_no_pieces_and_many_words_are_counted(saved):
    asked = saved.loaded("tagging").signatures
    texts = [b"", b" \t\n", b"\xff\xfe\xc3( the", b"the " * 25_000, b"\x00\x01 \x02"]
    answer = asked["serving_default"](text=tf.constant(texts))
    assert answer["num_words"].numpy().tolist() == [0, 0, 2, 25_000, 2]
    assert answer["truncated"].numpy().tolist() == [False, False, False, True, False]
    # An empty string before the last word is a word of no pieces, as a control character is.
    listed = asked["words"](words=tf.constant([["the", "", "city", ""], ["", "", "", ""]]))
    assert listed["num_words"].numpy().tolist() == [3, 0]
    control = asked["words"](words=tf.constant([["the", "\x01", "city", ""]]))
    assert listed["tags"][0].numpy().tolist() == control["tags"][0].numpy().tolist()
    assert asked["words"](words=tf.zeros([2, 0], tf.string))["num_words"].numpy().tolist() == [0, 0]


@pytest.mark.slow  # a model of its own
def test_crf_answers_with_the_best_path_and_its_log_probability(tmp_path, sentences):
    """Of whole sentences, also where they are divided, and of requests divided into parts."""
    own = task("tagging")
    given = {"num_hidden_layers": 1, "hparams": {"head": "crf"}}
    objective, hparams, words = fine_tuned(tmp_path, own, **given)
    served = signatures(load_model_directory(str(tmp_path)))
    traced = {name: item.trace() for name, item in served.items()}
    asked = [item for item in sentences for _ in range(4)]
    encoded, outputs, tags = evaluated(objective, own, asked, words, hparams)
    answer = traced["serving_default"](tf.constant([" ".join(item.words) for item in asked]))
    assert encoded.row_splits[-1] > 4096  # more than a part
    assert max(encoded.sequences["window"]) > 3
    for (_, found), expected in zip(rows_of_answer(answer), tags):
        assert found == [own.labels[tag] for tag in expected]
    emissions = outputs["emissions"][encoded.tokens["tag_weight"] > 0]
    ends = np.cumsum([0, *(len(item.words) for item in asked)])
    scores = objective.head.scores()
    greedy = 0
    for number, (start, end) in list(enumerate(itertools.pairwise(ends)))[::16]:
        words, count = emissions[None, start:end], tf.constant([int(end - start)])
        path = viterbi(words, count, scores)
        given = (words, path.to_tensor(), count, scores, tf.constant([False]))
        score = -float(negative_log_likelihood(*given)[0])
        assert float(answer["score"][number]) == pytest.approx(score, abs=1e-3)
        greedy += np.sum(emissions[start:end].argmax(-1) != path[0].numpy())
    assert greedy > 20  # paths are not the best tags one by one

    empty = traced["serving_default"](tf.constant(["", "the"]))
    assert float(empty["score"][0]) == 0.0 > float(empty["score"][1])
    assert traced["serving_default"](tf.constant([], tf.string))["score"].shape == [0]
    assert traced["words"](tf.zeros([2, 0], tf.string))["tags"].shape == [2, 0]


LENGTHS = {"max_seq_length": 48, "max_query_length": 16, "doc_stride": 8}
VARIANTS = {  # thresholds near the median: some questions are answered, some are not
    "joint": (True, {"qa_na_threshold": -2.86}),
    "version 1": (False, {"max_seq_length": 64, "max_query_length": 8, "doc_stride": 50}),
    "without a classifier": (True, {"answerable_classifier": False, "qa_na_threshold": -0.377}),
}


# The others trace as long again, each.
@pytest.mark.parametrize("name", slow_but(["joint"], VARIANTS))
def test_the_answers_are_those_of_fine_tuning(tmp_path, name):
    examples = read_squad(small_file(tmp_path / "dev.json"), training=False)[::2]
    contexts = ("", "  ", "\x07", LONG[:200], "é" * 60, CONTEXT * 3)
    for pair in itertools.product(("", "who?", "what was born in the city " * 4), contexts):
        examples.append(QuestionExample("", *pair, (), None, False))
    version_2, changes = VARIANTS[name]
    own, seed = task("span", version_2=version_2), list(VARIANTS).index(name)
    settings = {"hparams": {**LENGTHS, **changes}, "num_hidden_layers": 1}
    objective, hparams, words = fine_tuned(tmp_path, own, seed=seed, **settings)
    asked = signatures(load_model_directory(str(tmp_path)))["serving_default"].trace()
    encoded, _, expected = evaluated(objective, own, examples, words, hparams)
    names = ("question", "context")
    inputs = {name: tf.constant([getattr(row, name) for row in examples]) for name in names}
    found = {name: value.numpy() for name, value in asked(**inputs).items()}
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
    # Of a shorter text, at most half may be the question.
    for length, most in ((12, 6), (hparams.max_seq_length, hparams.max_query_length)):
        loaded = load_model_directory(str(tmp_path), max_seq_length=length)
        assert loaded.hparams.max_query_length == most


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


WORDS = ["the", "city", "born", "ab", "1995", "北京", "\x07", "_"]


@pytest.fixture(scope="module")
def stories():
    draw = np.random.default_rng(0)

    def text(most):
        return " ".join(draw.choice(WORDS, draw.integers(1, most)))

    return [
        ChoiceExample(str(i), text(40), "" if i % 7 == 0 else text(8),
                      tuple(text(6) for _ in range(2 + i % 2)), None)
        for i in range(30)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [{"question_apart": False, "fill_blank": True}, pytest.param({}, marks=pytest.mark.slow)],
    ids=["xlnet", "default"],  # a graph each
)
def test_the_choices_are_those_of_fine_tuning(tmp_path, stories, settings):
    own = task("multiple_choice")
    settings = {**settings, "max_qa_length": 12}
    objective, hparams, words = fine_tuned(tmp_path, own, hparams=settings, num_hidden_layers=1)
    encoded, outputs, expected = evaluated(objective, own, stories, words, hparams)
    served = signatures(load_model_directory(str(tmp_path)))
    choose = served["serving_default"].trace()
    columns = {name: tf.constant([getattr(x, name) for x in stories])
               for name in ("context", "question")}  # fmt: skip
    for width in (3, 5):
        options = padded([x.options for x in stories], width)
        found = {key: value.numpy() for key, value in choose(**columns, options=options).items()}
        assert found["choice"].tolist() == expected
        assert len(set(expected)) > 1
        assert found["num_options"].tolist() == [len(x.options) for x in stories]
        chosen = [x.options[place].encode() for x, place in zip(stories, expected)]
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

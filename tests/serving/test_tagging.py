"""Tagging in the graph: the words and tags of fine-tuning."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from convbert.finetune.kinds.tagging import TaggedExample
from convbert.model.heads.linear_chain import viterbi
from convbert.serving.load import load_model_directory, signatures
from tests.serving.support import evaluated, fine_tuned, padded, task


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The network, its signatures in the graph, task, hparams, vocabulary."""
    own = task("tagging")
    folder = tmp_path_factory.mktemp("tagging")
    objective, hparams, words = fine_tuned(folder, own, num_hidden_layers=1)
    served = signatures(load_model_directory(str(folder)))
    traced = {name: served[name].trace() for name in ("serving_default", "words")}
    return objective, traced, own, hparams, words


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


def test_the_tags_are_those_of_fine_tuning(model, sentences):
    objective, asked, own, hparams, words = model
    encoded, _, tags = evaluated(objective, own, sentences, words, hparams)
    expected = [[own.labels[tag] for tag in row] for row in tags]
    text = asked["serving_default"](tf.constant([" ".join(item.words) for item in sentences]))
    longest = max(len(item.words) for item in sentences)
    listed = asked["words"](padded([item.words for item in sentences], longest + 2))
    assert listed["tags"].shape == [len(sentences), longest + 2]
    for answer in (text, listed):
        for (words, tags), item, tagged in zip(rows_of_answer(answer), sentences, expected):
            assert words == list(item.words)
            assert tags == tagged
        assert answer["truncated"].numpy().sum() == encoded.truncated > 10
    counts = collections.Counter(tag for tags in expected for tag in tags)
    assert len(counts) > 1
    assert min(counts.values()) > 30


def test_words_of_no_pieces_and_many_words_are_counted(model):
    asked = model[1]
    texts = [b"", b" \t\n", b"\xff\xfe\xc3( the", b"the " * 25_000, b"\x00\x01 \x02"]
    answer = asked["serving_default"](tf.constant(texts))
    assert answer["num_words"].numpy().tolist() == [0, 0, 2, 25_000, 2]
    assert answer["truncated"].numpy().tolist() == [False, False, False, True, False]
    # An empty string before the last word is a word of no pieces, as a control character is.
    listed = asked["words"](tf.constant([["the", "", "city", ""], ["", "", "", ""]]))
    assert listed["num_words"].numpy().tolist() == [3, 0]
    control = asked["words"](tf.constant([["the", "\x01", "city", ""]]))
    assert listed["tags"][0].numpy().tolist() == control["tags"][0].numpy().tolist()
    assert asked["words"](tf.zeros([2, 0], tf.string))["num_words"].numpy().tolist() == [0, 0]


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
        path, score = viterbi(emissions[None, start:end], tf.constant([int(end - start)]), scores)
        assert float(answer["score"][number]) == pytest.approx(float(score[0]), abs=1e-3)
        greedy += np.sum(emissions[start:end].argmax(-1) != path[0].numpy())
    assert greedy > 20  # paths are not the best tags one by one

    empty = traced["serving_default"](tf.constant(["", "the"]))
    assert float(empty["score"][0]) == 0.0 > float(empty["score"][1])
    assert traced["serving_default"](tf.constant([], tf.string))["score"].shape == [0]
    assert traced["words"](tf.zeros([2, 0], tf.string))["tags"].shape == [2, 0]

"""Choices by combined scores against a plain loop, and bootstrap intervals of known answers."""

import math

import numpy as np
import pytest

from errors import InputError
from scoring.nbest import Utterance
from scoring.rescore_search import NBest, choices, improvement, parse_lambdas


@pytest.fixture(scope="module")
def lists():
    """Random lists of one to five hypotheses."""
    random = np.random.default_rng(0)
    utterances = []
    for number in range(40):
        words = random.integers(0, 4, random.integers(1, 7)).astype(str)
        texts = []
        for _ in range(random.integers(1, 6)):
            kept = words[random.random(len(words)) < 0.8]
            texts.append(" ".join(np.where(random.random(len(kept)) < 0.3, "x", kept)) or "x")
        scores = random.integers(-3, 0, len(texts)).astype(float).tolist()  # with ties
        utterances.append(Utterance(str(number), " ".join(words), texts, scores))
    return NBest.of(utterances)


def rate(lists, key):
    """Percent of words wrong by a plain loop; `key(utterance index, hypothesis index)` ranks."""
    wrong = words = 0
    for u, utterance in enumerate(lists.utterances):
        best = 0
        for i in range(1, len(utterance.hypotheses)):
            if key(u, i) > key(u, best):
                best = i
        wrong += lists.errors[u, best]
        words += len(utterance.reference.split())
    return 100 * wrong / words


def test_rates_are_those_of_a_plain_loop(lists):
    scores = [-float(len(t)) for u in lists.utterances for t in u.hypotheses]
    padded, lambdas = lists.language_scores(scores), parse_lambdas("0,0.1,0.25,3")
    rates = lists.rates(choices(lists, padded, lambdas))
    for weight, found in zip(lambdas, rates):

        def total(u, i, weight=weight):
            utterance = lists.utterances[u]
            return utterance.scores[i] - weight * len(utterance.hypotheses[i])

        assert found == pytest.approx(rate(lists, total), abs=1e-12)
    first = lists.rates(lists.first_best())
    assert first == rates[0] == pytest.approx(rate(lists, lambda u, i: lists.scores[u, i]))
    oracle = lists.rates(lists.oracle())
    assert oracle == pytest.approx(rate(lists, lambda u, i: -lists.errors[u, i]))
    assert oracle < min(rates)


def test_scores_that_count_errors_reach_the_oracle(lists):
    counts = [e for row, u in zip(lists.errors, lists.utterances) for e in row[: len(u.scores)]]
    chosen = choices(lists, lists.language_scores(np.negative(counts)), np.array([1e6]))
    assert lists.rates(chosen)[0] == lists.rates(lists.oracle())


def test_the_first_of_equal_hypotheses_is_chosen():
    utterance = Utterance("u", "a", ["b", "a", "a"], [-1.0, -1.0, -1.0])
    lists = NBest.of([utterance])
    assert lists.first_best().tolist() == [0]
    assert lists.oracle().tolist() == [1]
    chosen = choices(lists, lists.language_scores([-5.0, -4.0, -4.0]), np.array([0.0, 1.0]))
    assert chosen.tolist() == [[0], [1]]


def test_summaries_hold_rate_and_kinds():
    lists = NBest.of([Utterance("u", "a b c d", ["a x d d", "b"], [-1, -2])])
    assert lists.summary(lists.first_best()) == {
        "wer": 50.0, "errors": 2, "substitutions": 2, "deletions": 0, "insertions": 0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0:1:0.25", [0, 0.25, 0.5, 0.75, 1]),
        ("0:1:0.4", [0, 0.4, 0.8]),
        ("2", [2]),
        ("0.3,0,0.3", [0, 0.3]),
        ("1:1:1", [1]),
    ],
)
def test_grids(text, values):
    assert parse_lambdas(text).tolist() == values


def test_steps_are_not_sums_of_rounded_ones():
    assert parse_lambdas("0:1:0.05")[3] == 0.15
    assert len(parse_lambdas("0:1:0.05")) == 21


@pytest.mark.parametrize(
    "text", ["a", "", "0:1", "0:1:0", "1:0:0.1", "0:1:-1", "-1,2", "nan", "0:inf:1", "0:1:1e-9"]
)
def test_other_grids_are_rejected(text):
    with pytest.raises(InputError, match="--lambdas"):
        parse_lambdas(text)


@pytest.mark.parametrize(
    ("texts", "scores", "chosen"),
    [
        (["a", "", "b"], [-1, -2, -3], [0, 2]),  # "" is not the best of the language model
        (["", "a", "b"], [-1, -2, -3], [0, 0]),  # and stays where the recogniser prefers it
        (["a", "", " "], [-3, -2, -1], [2, 2]),
    ],
)
def test_hypotheses_without_words_are_left_to_the_recogniser(texts, scores, chosen):
    lists = NBest.of([Utterance("u", "a", texts, scores), Utterance("v", "a", ["a"], [0])])
    values = {"a": -9.0, "b": -1.0}
    found = lists.language_scores([values.get(text, math.nan) for text in lists.texts()])
    assert choices(lists, found, np.array([0.0, 1.0]))[:, 0].tolist() == chosen


def test_scores_beyond_float64_leave_the_choice_to_the_recogniser():
    lists = NBest.of([Utterance("u", "a", ["b", "a"], [-2, -1])])
    found = lists.language_scores([-1e308, -1.1e308])
    assert choices(lists, found, np.array([0.0, 1.0, 20.0]))[:, 0].tolist() == [1, 0, 1]


def improved(fewer, words=10):
    """Lists in which the second hypothesis of utterance u has `fewer[u]` fewer errors."""
    reference = " ".join(map(str, range(words)))
    first = reference.replace("0", "x").replace("1", "y")
    texts = {0: first, 1: reference.replace("0", "x"), 2: reference, -1: "x y z" + first[5:]}
    return NBest.of([Utterance("u", reference, [first, texts[n]], [0, -1]) for n in fewer])


def test_an_improvement_of_every_utterance_has_no_spread():
    lists = improved([1] * 50)
    found = improvement(lists, np.ones(50, np.int64), resamples=200, seed=0)
    assert found["points"] == pytest.approx(10)
    assert found["interval"] == pytest.approx([10, 10])


def test_no_change_is_no_improvement(lists):
    found = improvement(lists, lists.first_best(), resamples=200, seed=0)
    assert found == {"points": 0.0, "interval": [0.0, 0.0]}


def test_the_interval_is_that_of_a_binomial():
    """One word of ten fewer in 30 % of the utterances: the mean of 400 Bernoulli variables."""
    fewer = [int(i % 10 < 3) for i in range(400)]
    lists = improved(fewer)
    found = improvement(lists, np.ones(400, np.int64), resamples=4000, seed=1)
    assert found["points"] == pytest.approx(3.0)
    half = 1.96 * 10 * math.sqrt(0.3 * 0.7 / 400)
    assert found["interval"] == pytest.approx([3 - half, 3 + half], abs=0.06)
    assert found == improvement(lists, np.ones(400, np.int64), resamples=4000, seed=1)
    assert found != improvement(lists, np.ones(400, np.int64), resamples=4000, seed=2)


def test_the_bootstrap_is_paired():
    """One word of ten fewer is wrong in short and in long utterances: no spread is left."""
    utterances = []
    for number, tens in enumerate([1, 4] * 30):
        words = [str(i) for i in range(10 * tens)]
        texts = [" ".join(["x"] * wrong + words[wrong:]) for wrong in (3 * tens, 2 * tens)]
        utterances.append(Utterance(str(number), " ".join(words), texts, [0, -1]))
    found = improvement(NBest.of(utterances), np.ones(60, np.int64), resamples=200, seed=0)
    assert found["interval"] == pytest.approx([10, 10])

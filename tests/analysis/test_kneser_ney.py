"""Kneser-Ney smoothing against its definition, counted by hand."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from analysis import kneser_ney
from analysis.kneser_ney import BEGIN, END, UNKNOWN, KneserNey, modified_discounts, perplexity

SENTENCES = [line.split() for line in ("a b a c", "b a b", "", "c c a b", "a", "b a c d")]


def oracle(sentences, order, word, context, vocabulary):
    """p(word | context) by Chen and Goodman's formula, counting the text again for every number."""
    texts = [[BEGIN, *sentence, END] for sentence in sentences]

    def occurrences(gram):
        n = len(gram)
        return [(t, i) for t in texts for i in range(len(t) - n + 1) if tuple(t[i : i + n]) == gram]

    def count(gram):
        places = occurrences(gram)
        if len(gram) == order or gram[0] == BEGIN:
            return len(places)
        return len({text[i - 1] for text, i in places})

    def grams(n):
        found = {tuple(t[i : i + n]) for t in texts for i in range(len(t) - n + 1)}
        return found - {(BEGIN,)}

    def p(context):
        n = len(context) + 1
        lower = p(context[1:]) if context else 1 / len(vocabulary)
        counts = {gram[-1]: count(gram) for gram in grams(n) if gram[:-1] == context}
        if not counts:
            return lower
        discounts = modified_discounts([count(gram) for gram in grams(n)])
        taken = sum(discounts[min(c, 3) - 1] for c in counts.values())
        own = counts.get(word, 0)
        kept = own - discounts[min(own, 3) - 1] if own else 0
        return (kept + taken * lower) / sum(counts.values())

    return p(tuple(context)[-(order - 1) :] if order > 1 else ())


def contexts(length):
    words = ["a", "b", "c", "d", "zebra"]
    for n in range(length + 1):
        yield from itertools.product(words, repeat=n)
        if n < length:
            yield from ((BEGIN, *rest) for rest in itertools.product(words, repeat=n))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities_are_the_definitions(order):
    model = KneserNey(SENTENCES, order)
    assert model.vocabulary == {"a", "b", "c", "d", END, UNKNOWN}
    for context in contexts(min(2, order)):
        for word in model.vocabulary:
            wanted = oracle(SENTENCES, order, word, context, model.vocabulary)
            assert model.probability(word, context) == pytest.approx(wanted, rel=1e-12), context


@pytest.mark.parametrize("order", [1, 2, 5])
def test_probabilities_sum_to_one(order):
    draw = random.Random(0)
    words = [f"w{i}" for i in range(30)]
    text = [
        [words[int(30 * draw.random() ** 3)] for _ in range(draw.randrange(12))]
        for _ in range(300)
    ]  # fmt: skip
    model = KneserNey(text, order)
    for _ in range(50):
        context = [BEGIN, *(draw.choice([*words, "unseen"]) for _ in range(draw.randrange(6)))]
        total = sum(model.probability(word, context) for word in model.vocabulary)
        assert total == pytest.approx(1.0, abs=1e-9)


def test_discounts_by_hand():
    counts = [1] * 10 + [2] * 5 + [3] * 3 + [4] * 2 + [9]
    y = 10 / 20
    wanted = (1 - 2 * y * 5 / 10, 2 - 3 * y * 3 / 5, 3 - 4 * y * 2 / 3)
    assert modified_discounts(counts) == pytest.approx(wanted)
    assert modified_discounts([1, 1, 2]) == kneser_ney._FALLBACK  # no counts of 3 and 4


def test_perplexity_counts_ends_and_unknown_words(tmp_path, capsys):
    model = KneserNey(SENTENCES, 2)
    value, count, unknown = perplexity(model, [["a", "zebra"], []])
    p = model.probability
    product = p("a", [BEGIN]) * p(UNKNOWN, ["a"]) * p(END, ["zebra"]) * p(END, [BEGIN])
    assert (count, unknown) == (4, 1)
    assert value == pytest.approx(math.exp(-math.log(product) / 4))
    (tmp_path / "train.txt").write_text("\n".join(map(" ".join, SENTENCES)) + "\n")
    (tmp_path / "valid.txt").write_text(" a zebra \n\n")
    arguments = ["--train", str(tmp_path / "train.txt"), "--heldout", str(tmp_path / "valid.txt")]
    kneser_ney.main(["", *arguments, "--order", "2"])
    assert f"perplexity {value:.2f} of 4 words" in capsys.readouterr().out

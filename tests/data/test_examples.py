"""The example logic against a plain loop over lists of tokens, and the properties it promises."""

import random

import numpy as np
import pytest

from convbert.data.examples import ExamplePlanner, assemble, permutation
from tests.build_support import VOCABULARY


def plain_examples(lines: list[list[int]], S: int, generator: random.Random):
    """ELECTRA's procedure on lists of tokens, sentence by sentence, with leftovers carried over."""
    waiting, target = [list(line) for line in lines if line], S
    while waiting:
        current = []
        while waiting and sum(map(len, current)) < target:
            current.append(waiting.pop(0))
        half = 10**9 if generator.random() < 0.1 else (target - 3) // 2
        first, second = [], []
        for sentence in current:
            in_first = not second and (
                not first
                or len(first) + len(sentence) < half
                or (len(first) < half and generator.random() < 0.5)
            )
            if in_first:
                first += sentence
            else:
                second += sentence
        everything = first + second
        first = first[: S - 2]
        second = everything[len(first) :][: max(0, S - len(first) - 3)]
        yield first, second
        # Whatever was not taken goes back, cut where the lines were.
        taken = len(first) + len(second)
        for sentence in reversed(current):
            rest = sentence[max(0, len(sentence) - (len(everything) - taken)) :]
            everything = everything[: len(everything) - len(sentence)]
            if rest and taken < len(everything) + len(sentence):
                waiting.insert(0, rest if taken > len(everything) else sentence)
            if taken >= len(everything):
                break
        target = S
        if generator.random() < 0.05:
            target = 5 + int(generator.random() * (S - 5 + 1))


def random_document(rng: np.random.Generator, longest_line: int) -> list[list[int]]:
    sizes = rng.integers(0, longest_line, rng.integers(1, 40))
    ids = iter(range(10, 10**6))
    return [[next(ids) for _ in range(size)] for size in sizes]


def plan(lines, S, seed):
    ends = np.cumsum([len(line) for line in lines]).tolist()
    return list(ExamplePlanner(S, random.Random(seed)).plan(ends))


@pytest.mark.parametrize(("S", "longest_line"), [(5, 3), (16, 6), (64, 30), (64, 300), (128, 20)])
def test_equals_the_plain_procedure(S, longest_line):
    rng = np.random.default_rng(S + longest_line)
    for seed in range(60):
        lines = random_document(rng, longest_line)
        tokens = [token for line in lines for token in line]
        got = [
            (tokens[start : start + first], tokens[start + first : start + first + second])
            for start, first, second in plan(lines, S, seed)
        ]
        assert got == list(plain_examples(lines, S, random.Random(seed)))


def test_the_order_of_examples_depends_on_large_keys():
    """As those of negative seeds are; floats would not tell them apart."""
    orders = {tuple(permutation(20, [2**64 - seed, 1])) for seed in range(1, 9)}
    assert len(orders) == 8
    assert all(sorted(order) == list(range(20)) for order in orders)


def test_assembled_arrays():
    tokens = np.arange(10, 30, dtype=np.int32)
    plans = np.array([[0, 3, 2], [5, 4, 0], [9, 3, 2], [14, 6, 0]])
    ids, mask, segments = assemble(tokens, plans, 8, VOCABULARY)
    expected = [[2, 10, 11, 12, 3, 13, 14, 3], [2, 15, 16, 17, 18, 3, 0, 0]]
    expected += [[2, 19, 20, 21, 3, 22, 23, 3], [2, 24, 25, 26, 27, 28, 29, 3]]
    assert ids.tolist() == expected
    assert mask.sum(axis=1).tolist() == [8, 6, 8, 8]
    assert mask[1].tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert segments.tolist() == [[0] * 5 + [1] * 3, [0] * 8, [0] * 5 + [1] * 3, [0] * 8]

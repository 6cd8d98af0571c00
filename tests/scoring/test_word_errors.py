"""Word errors against counts by hand."""

import pytest

from scoring.word_errors import count_errors, count_words, kinds_of_errors

# Reference, hypothesis; substitutions, deletions, insertions counted by hand.
BY_HAND = [
    ("the cat sat on the mat", "the cat sat on the mat", (0, 0, 0)),
    ("the cat sat on the mat", "the hat sat on the mat", (1, 0, 0)),
    ("the cat sat on the mat", "the cat on the mat", (0, 1, 0)),
    ("the cat sat on the mat", "the cat sat down on the mat", (0, 0, 1)),
    ("the cat sat on the mat", "a cat sat the mat too", (1, 1, 1)),
    ("to day", "today", (1, 1, 0)),
    ("today", "to day", (1, 0, 1)),
    ("a b", "", (0, 2, 0)),
    ("", "a b", (0, 0, 2)),
    ("a  b", " a b ", (0, 0, 0)),  # whitespace separates words, however much of it
    ("It is", "it is", (1, 0, 0)),  # cases differ
]


@pytest.mark.parametrize(("reference", "hypothesis", "kinds"), BY_HAND)
def test_errors_are_those_counted_by_hand(reference, hypothesis, kinds):
    assert count_errors(reference, [hypothesis]) == [sum(kinds)]
    assert tuple(kinds_of_errors([reference], [hypothesis]).values()) == kinds


def test_kinds_add_up_over_a_set():
    found = kinds_of_errors(*zip(*((r, h) for r, h, _ in BY_HAND)))
    assert list(found) == ["substitutions", "deletions", "insertions"]
    assert list(found.values()) == [sum(kinds) for kinds in zip(*(k for _, _, k in BY_HAND))]
    assert count_words(["a b", "", " a  b c"]).tolist() == [2, 0, 3]

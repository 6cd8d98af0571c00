"""The baselines that a model is compared with, on sentences small enough to count by hand."""

import numpy as np
import pytest

from analysis.guesses import BigramGuesser, hidden_weights, score_guesses

PAD, UNK, CLS, SEP, MASK, A, B, C, D = range(9)
TEXT = np.array(
    [[CLS, A, B, C, SEP], [CLS, A, B, D, SEP], [CLS, A, C, D, SEP], [CLS, C, C, SEP, PAD]]
)
ALLOWED = np.array([0, 1, 0, 0, 0, 1, 1, 1, 1], bool)


@pytest.fixture
def guesser():
    halves = [TEXT[:2], TEXT[2:]]
    return BigramGuesser(9, [(half, (half != PAD).astype(int)) for half in halves])


def test_counts(guesser):
    assert guesser.unigrams.tolist() == [0, 0, 4, 4, 0, 3, 2, 4, 2]
    assert guesser.count(np.array([A, A, B, D]), np.array([B, C, A, SEP])).tolist() == [2, 1, 0, 2]


def test_guesses(guesser):
    assert guesser.from_left(A, ALLOWED) == B
    assert guesser.from_left(MASK, ALLOWED) is None
    assert guesser.from_left(D, ALLOWED) is None  # only [SEP] follows, which is never hidden
    # After A came B twice and C once; before D came B once of 2 and C once of 4.
    assert guesser.from_both(A, D, ALLOWED) == B
    assert guesser.from_both(A, C, ALLOWED) == B
    assert guesser.from_both(C, MASK, ALLOWED) is None


def test_only_hidden_tokens_are_scored(guesser):
    """D is chosen and shown, in the first row unchanged, in the second replaced: neither counts."""
    batch = {
        "masked_input_ids": np.array([[CLS, A, MASK, D, SEP], [CLS, MASK, C, A, SEP]]),
        "masked_lm_positions": np.array([[2, 3, 0], [1, 3, 0]]),
        "masked_lm_ids": np.array([[B, D, 0], [C, D, 0]]),
        "masked_lm_weights": np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]),
    }
    assert hidden_weights(batch, MASK).tolist() == [[1, 0, 0], [1, 0, 0]]
    scores = score_guesses(guesser, [batch], MASK, [PAD, CLS, SEP, MASK])
    # B came most often after A; the most frequent token is C; A came most often after [CLS], but
    # between [CLS] and C, both A (3 of 4, then 1 of 3) and C (1 of 4, then 1 of 4) did.
    assert scores == pytest.approx(
        {"most frequent token": 0.5, "bigram, left neighbour": 0.5, "bigram, both neighbours": 0.5}
    )

"""The baselines that a model is compared with, on sentences small enough to count by hand."""

import numpy as np
import pytest

from convbert.examples.quickstart.ngrams import BigramModel, baseline_accuracies, hidden_weights

PAD, UNK, CLS, SEP, MASK, A, B, C, D = range(9)
TEXT = np.array(
    [[CLS, A, B, C, SEP], [CLS, A, B, D, SEP], [CLS, A, C, D, SEP], [CLS, C, C, SEP, PAD]]
)


@pytest.fixture
def model():
    halves = [TEXT[:2], TEXT[2:]]
    batches = [(half, (half != PAD).astype(int)) for half in halves]
    return BigramModel(9, batches, [PAD, CLS, SEP, MASK])


@pytest.mark.parametrize(
    ("left", "right", "by_left", "by_both"),
    [
        # After A came B twice and C once; before D came B once of 2 and C once of 4.
        (A, D, B, B),
        (A, C, B, B),
        (C, MASK, C, C),  # nothing was seen before [MASK]; after C came C, D and [SEP], once each
        (MASK, A, C, C),  # nor after it: the most frequent token
        (MASK, D, C, B),  # before D came B and C, once each
        (D, A, C, C),  # only [SEP] follows, which is never hidden
    ],
)
def test_predictions(model, left, right, by_left, by_both):
    assert model.predict(left, right) == (C, by_left, by_both)


def test_only_hidden_tokens_are_scored(model):
    """D is chosen and shown, in the first row unchanged, in the second replaced: neither counts."""
    batch = {
        "masked_input_ids": np.array([[CLS, A, MASK, D, SEP], [CLS, MASK, C, A, SEP]]),
        "masked_lm_positions": np.array([[2, 3, 0], [1, 3, 0]]),
        "masked_lm_ids": np.array([[B, D, 0], [C, D, 0]]),
        "masked_lm_weights": np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]),
    }
    assert hidden_weights(batch, MASK).tolist() == [[1, 0, 0], [1, 0, 0]]
    scores = baseline_accuracies(model, [batch], MASK)
    # B came most often after A; the most frequent token is C; A came most often after [CLS], but
    # between [CLS] and C, both A (3 of 4, then 1 of 3) and C (1 of 4, then 1 of 4) did.
    names = ("most frequent token", "bigram, left neighbour", "bigram, both neighbours")
    assert scores == pytest.approx(dict.fromkeys(names, 0.5))

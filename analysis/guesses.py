"""n-gram baselines: predictions of hidden tokens from counts of the training text alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class BigramGuesser:
    """Guesses a token from its visible neighbours, by counts of adjacent pairs in training text.

    Args:
        vocab_size: V.
        batches: pairs of ids and mask, int [B, S]; the mask is 1 for tokens, 0 for padding.
    """

    def __init__(self, vocab_size: int, batches: Iterable[tuple[np.ndarray, np.ndarray]]):
        self.vocab_size = V = vocab_size
        self.unigrams = np.zeros(V, np.int64)
        pairs, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for ids, mask in batches:
            self.unigrams += np.bincount(ids[mask > 0], minlength=V)
            both = (mask[:, 1:] > 0) & (mask[:, :-1] > 0)
            codes = (ids[:, :-1].astype(np.int64) * V + ids[:, 1:])[both]  # left * V + right
            pairs, counts = _merge(pairs, counts, *np.unique(codes, return_counts=True))
        self.pairs, self.counts = pairs, counts

    def count(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """How often `right` followed `left`, elementwise."""
        codes = left.astype(np.int64) * self.vocab_size + right
        index = np.minimum(np.searchsorted(self.pairs, codes), len(self.pairs) - 1)
        return np.where(self.pairs[index] == codes, self.counts[index], 0)

    def after(self, left: int) -> tuple[np.ndarray, np.ndarray]:
        """The tokens seen after `left` and how often."""
        V = self.vocab_size
        start, stop = np.searchsorted(self.pairs, [left * V, (left + 1) * V])
        return self.pairs[start:stop] - left * V, self.counts[start:stop]

    def from_left(self, left: int, allowed: np.ndarray) -> int | None:
        """The token most often seen after `left`, or None when that was never seen."""
        tokens, counts = self.after(left)
        counts = counts * allowed[tokens]
        return int(tokens[np.argmax(counts)]) if counts.any() else None

    def from_both(self, left: int, right: int, allowed: np.ndarray) -> int | None:
        """argmax over w of P(w | left) P(right | w), or None when no w was seen with both."""
        tokens, counts = self.after(left)
        following = self.count(tokens, np.full_like(tokens, right))
        scores = counts * allowed[tokens] * following / self.unigrams[tokens]
        return int(tokens[np.argmax(scores)]) if scores.any() else None


def _merge(pairs, counts, more_pairs, more_counts):
    """Adds two sparse counts, each with sorted keys."""
    keys = np.concatenate([pairs, more_pairs])
    unique, inverse = np.unique(keys, return_inverse=True)
    values = np.concatenate([counts, more_counts])
    return unique, np.bincount(inverse, weights=values, minlength=len(unique)).astype(np.int64)


def score_guesses(
    guesser: BigramGuesser,
    batches: list[dict[str, np.ndarray]],
    mask_id: int,
    never_masked: list[int],
) -> dict[str, float]:
    """Accuracy of each baseline on the hidden held-out tokens: those in whose place stands [MASK].

    The other tokens that masking chooses are shown, unchanged or replaced by a random one.

    Args:
        guesser: counts of the training text.
        batches: prepared batches, see `pretrain.masking.mask_tokens`.
        mask_id: of [MASK].
        never_masked: ids that are never predicted.

    Returns:
        `most frequent token`, `bigram, left neighbour`, `bigram, both neighbours`.
    """
    allowed = np.ones(guesser.vocab_size, bool)
    allowed[never_masked] = False
    most_frequent = int(np.argmax(guesser.unigrams * allowed))
    hits, count = np.zeros(3, np.int64), 0
    for batch in batches:
        for row, slot in zip(*np.nonzero(hidden_weights(batch, mask_id))):
            seen, position = batch["masked_input_ids"][row], batch["masked_lm_positions"][row, slot]
            answer = batch["masked_lm_ids"][row, slot]
            count += 1
            left, right = int(seen[position - 1]), int(seen[min(position + 1, len(seen) - 1)])
            one = guesser.from_left(left, allowed)
            one = most_frequent if one is None else one  # a hidden neighbour says nothing
            two = guesser.from_both(left, right, allowed)
            guesses = (most_frequent, one, one if two is None else two)
            hits += np.array(guesses) == answer
    names = ("most frequent token", "bigram, left neighbour", "bigram, both neighbours")
    return dict(zip(names, (hits / max(1, count)).tolist()))


def hidden_weights(batch: dict[str, np.ndarray], mask_id: int) -> np.ndarray:
    """`masked_lm_weights` of the slots whose token is hidden, float32 [B, P]; 0 of the others."""
    shown = np.take_along_axis(batch["masked_input_ids"], batch["masked_lm_positions"], axis=1)
    return batch["masked_lm_weights"] * (shown == mask_id)

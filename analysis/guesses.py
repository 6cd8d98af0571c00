"""Guesses of hidden tokens that need no network, only counts of the training text."""

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
    guesser: BigramGuesser, batches: list[dict[str, np.ndarray]], never_masked: list[int]
) -> dict[str, float]:
    """Accuracy of each guess on masked held-out tokens.

    Args:
        guesser: counts of the training text.
        batches: prepared batches, see `pretrain.masking.mask_tokens`.
        never_masked: ids that are never predicted and so never guessed.

    Returns:
        `commonest token`, `bigram, left neighbour`, `bigram, both neighbours`, `slots`.
    """
    allowed = np.ones(guesser.vocab_size, bool)
    allowed[never_masked] = False
    commonest = int(np.argmax(guesser.unigrams * allowed))
    hits, slots = np.zeros(3, np.int64), 0
    for batch in batches:
        for row, slot in zip(*np.nonzero(batch["masked_lm_weights"])):
            seen, position = batch["masked_input_ids"][row], batch["masked_lm_positions"][row, slot]
            answer = batch["masked_lm_ids"][row, slot]
            slots += 1
            if allowed[seen[position]]:  # not hidden: every guess, as the model may, copies it
                hits += seen[position] == answer
                continue
            left, right = int(seen[position - 1]), int(seen[min(position + 1, len(seen) - 1)])
            one = guesser.from_left(left, allowed)
            one = commonest if one is None else one  # a hidden neighbour says nothing
            two = guesser.from_both(left, right, allowed)
            guesses = (commonest, one, one if two is None else two)
            hits += np.array(guesses) == answer
    names = ("commonest token", "bigram, left neighbour", "bigram, both neighbours")
    return {**dict(zip(names, (hits / max(1, slots)).tolist())), "slots": slots}

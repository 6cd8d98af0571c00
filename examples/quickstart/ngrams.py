"""n-gram baselines: predictions of hidden tokens from counts of the training text alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy import sparse

BASELINES = ("most frequent token", "bigram, left neighbour", "bigram, both neighbours")


class BigramModel:
    """Predicts a token from its visible neighbours, by counts of adjacent pairs in training text.

    `batches` are pairs of ids and mask, int [B, S]; the mask is 1 for tokens, 0 for padding. The
    ids `never_masked` are never predicted.
    """

    def __init__(
        self,
        vocab_size: int,
        batches: Iterable[tuple[np.ndarray, np.ndarray]],
        never_masked: Sequence[int] = (),
    ):
        V = vocab_size
        self.unigrams = np.zeros(V, np.int64)
        after = sparse.csr_matrix((V, V), dtype=np.int64)  # [left, right]
        for ids, mask in batches:
            self.unigrams += np.bincount(ids[mask > 0], minlength=V)
            both = (mask[:, 1:] > 0) & (mask[:, :-1] > 0)
            pairs = ids[:, :-1][both], ids[:, 1:][both]
            ones = np.ones(len(pairs[0]), np.int64)
            after = after + sparse.coo_matrix((ones, pairs), shape=(V, V)).tocsr()
        self.after, self.before = after, after.T.tocsr()
        self.allowed = np.ones(V, bool)
        self.allowed[list(never_masked)] = False
        self.most_frequent = int(np.argmax(self.unigrams * self.allowed))

    def predict(self, left: int, right: int) -> tuple[int, int, int]:
        """The prediction of each of BASELINES for the token between two others.

        From the left neighbour it is argmax over w of P(w | left), from both argmax over w of
        P(w | left) P(right | w). Where no pair was seen, as beside [MASK], the other neighbour
        alone or the simpler baseline predicts.
        """
        following = self.after[[left]].toarray()[0] * self.allowed
        by_left = int(np.argmax(following)) if following.any() else self.most_frequent
        preceding = self.before[[right]].toarray()[0] * self.allowed
        scores = following * preceding / np.maximum(1, self.unigrams)
        if not scores.any() and not following.any():
            scores = preceding
        by_both = int(np.argmax(scores)) if scores.any() else by_left
        return self.most_frequent, by_left, by_both


def baseline_accuracies(
    model: BigramModel, batches: list[dict[str, np.ndarray]], mask_id: int
) -> dict[str, float]:
    """Accuracy of each of BASELINES on the hidden tokens: those in whose place stands [MASK].

    The other tokens that masking chooses are shown, unchanged or replaced by a random one.
    """
    hits, count = np.zeros(len(BASELINES), np.int64), 0
    for batch in batches:
        for row, slot in zip(*np.nonzero(hidden_weights(batch, mask_id))):
            seen, place = batch["masked_input_ids"][row], batch["masked_lm_positions"][row, slot]
            right = seen[min(place + 1, len(seen) - 1)]
            predictions = model.predict(int(seen[place - 1]), int(right))
            hits += np.array(predictions) == batch["masked_lm_ids"][row, slot]
            count += 1
    return dict(zip(BASELINES, (hits / max(1, count)).tolist()))


def hidden_weights(batch: dict[str, np.ndarray], mask_id: int) -> np.ndarray:
    """`masked_lm_weights` of the slots whose token is hidden, float32 [B, P]; 0 of the others."""
    shown = np.take_along_axis(batch["masked_input_ids"], batch["masked_lm_positions"], axis=1)
    return batch["masked_lm_weights"] * (shown == mask_id)

"""Made-up texts, whose words are one piece each, and token ids. Needs no TensorFlow or torch."""

from __future__ import annotations

import itertools
import string

import numpy as np

WARM_UP = 2048  # of `sentences`: as many as a request of `convbert.load` has at most
SPECIAL_IDS = {"cls": 101, "sep": 102, "mask": 103}  # of BERT's vocabulary


def sentences(count: int) -> list[str]:
    """Texts as long as sentences: log-normal, a median of 16 words and at most 120."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(np.log(16), 0.6, count), 2, 120).astype(int)
    words = iter(draw.choice(made_up_words(5000), lengths.sum()))
    return [" ".join(itertools.islice(words, length)) for length in lengths]


def random_features(batch: int, length: int, vocab_size: int = 8000) -> dict[str, np.ndarray]:
    """Ordinary tokens between [CLS] and [SEP], int32 [batch, length]; every size has 8,000."""
    ids = np.random.default_rng(0).integers(1000, vocab_size, [batch, length], np.int32)
    ids[:, 0], ids[:, -1] = SPECIAL_IDS["cls"], SPECIAL_IDS["sep"]
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}


def made_up_words(count: int) -> list[str]:
    """The first words of four letters, each a piece of the random models' vocabulary."""
    letters = itertools.product(string.ascii_lowercase, repeat=4)
    return ["".join(word) for word in itertools.islice(letters, count)]

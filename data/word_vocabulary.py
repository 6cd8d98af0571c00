"""A vocabulary of whole words by their counts, as language models of PTB and WikiText have."""

from __future__ import annotations

import collections
from collections.abc import Iterable

import tensorflow as tf

from data.tokenization import batches
from data.vocabulary import TOKENIZERS, Vocabulary

_SPECIAL = tuple(dict.fromkeys(TOKENIZERS["words"]))


def learn_words(
    texts: Iterable[str], vocab_size: int | None = None, *, do_lower_case: bool = False
) -> Vocabulary:
    """The words of a text, by falling count, ties by spelling; so cutoffs are ranks.

    Args:
        texts: lines of text; read once.
        vocab_size: the largest number of tokens, of which the special tokens are the first; other
            words become `<unk>`. None: all words.
        do_lower_case: see `Vocabulary`.
    """
    counts: collections.Counter[str] = collections.Counter()
    for batch in batches(texts):
        if do_lower_case:  # by the op that the tokenizer lower-cases by
            lowered = tf.strings.lower(tf.constant(batch, tf.string), encoding="utf-8").numpy()
            batch = [line.decode("utf-8") for line in lowered]
        for line in batch:
            counts.update(line.split())
    words = sorted(counts.keys() - {*_SPECIAL}, key=lambda word: (-counts[word], word))
    tokens = (*_SPECIAL, *words)[:vocab_size]
    return Vocabulary(tokens, do_lower_case, strip_accents=False, tokenizer="words")

"""Which tokens of a vocabulary begin a word. Needs no TensorFlow."""

from __future__ import annotations

import numpy as np

from data.vocabulary import Vocabulary

_CONTINUES = "##"  # WordPiece
# SentencePiece: after a space, special tokens, and what stands alone.
_BEGINS, _ALONE = ("▁", "<"), frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')


def word_starts(vocabulary: Vocabulary) -> np.ndarray:
    """Whether each token begins a word, bool [V].

    Of SentencePiece as `_is_start_piece` in data_utils.py of zihangdai/xlnet has it.
    """
    tokens = vocabulary.tokens
    if vocabulary.tokenizer == "sentencepiece":
        found = (t.startswith(_BEGINS) or t in _ALONE for t in tokens)
    else:
        found = (not token.startswith(_CONTINUES) for token in tokens)
    return np.fromiter(found, bool, len(tokens))

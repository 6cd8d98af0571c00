"""Which tokens of a vocabulary begin a word. Needs no TensorFlow."""

from __future__ import annotations

from data.vocabulary import Vocabulary

_CONTINUES = "##"  # WordPiece
# SentencePiece: after a space, special tokens, and what stands alone.
_BEGINS, _ALONE = ("▁", "<"), frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')


def word_starts(vocabulary: Vocabulary) -> list[bool]:
    """Whether each token begins a word, in the order of the ids.

    Of SentencePiece as `_is_start_piece` in data_utils.py of zihangdai/xlnet has it.
    """
    tokens = vocabulary.tokens
    if vocabulary.tokenizer == "sentencepiece":
        return [token.startswith(_BEGINS) or token in _ALONE for token in tokens]
    return [not token.startswith(_CONTINUES) for token in tokens]

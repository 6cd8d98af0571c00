"""WordPiece is a tokenizer as the protocol says."""

from data.tokenization import Tokenizer
from data.tokenizer_protocol import Layout, Pieces, PieceTokenizer
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.layout import TextLayout


def test_wordpiece_is_one():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a"))
    assert isinstance(vocabulary, Pieces)
    assert isinstance(Tokenizer(vocabulary), PieceTokenizer)
    assert issubclass(TextLayout, Layout)

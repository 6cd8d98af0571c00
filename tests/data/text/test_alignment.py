"""Where word pieces stand in the text as it was written."""

import numpy as np
import pytest
import tensorflow as tf

from convbert.data.text.alignment import align
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from tests.sentencepiece_support import comma_model

SWITCHES = [(True, True), (True, False), (False, True), (False, False)]
EVERY = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000)


def rows(tokens):
    """(ids, char_start, char_end) of each text."""
    return list(zip(*([row.numpy() for row in column] for column in tokens)))


def check(tokens, texts, tokenizer):
    """They are the tokenizer's, in the order of the text, and inside it."""
    ids, splits = tokenizer.tokenize(texts)
    np.testing.assert_array_equal(tokens.ids.values, ids)
    np.testing.assert_array_equal(tokens.ids.row_splits, splits)
    for text, (_, start, end) in zip(texts, rows(tokens)):
        assert (np.diff(start) >= 0).all()
        assert (np.diff(end) >= 0).all()
        assert end.max(initial=0) <= len(text)


SENTENCEPIECE_TEXTS = [
    "A  Café, in 2007, ``x'' '''",
    "",
    "  the\t old\nriver  ",
    " 北京 100, ½ ﬁne 한국",
    "``the''" * 3,
    "a\u0301\u0300  e\u0301 \u0f73",
    "\x00\x07 the\ufeff of\u200b 3,4,5,",
    " ".join(EVERY[i : i + 60] for i in range(0, 0x4000, 60)),
]


@pytest.mark.parametrize(("lower", "strip"), SWITCHES)
def test_pieces_of_sentencepiece(lower, strip):
    words = Vocabulary.of_model(comma_model(), do_lower_case=lower, strip_accents=strip)
    tokenizer = create_tokenizer(words)
    tokens = tf.function(lambda text: align(text, tokenizer))(tf.constant(SENTENCEPIECE_TEXTS))
    check(tokens, SENTENCEPIECE_TEXTS, tokenizer)
    for text, (found, start, end) in zip(SENTENCEPIECE_TEXTS, rows(tokens)):
        assert (end >= start).all()
        for number, piece in zip(found, (text[a:b] for a, b in zip(start, end))):
            token = words.tokens[number]
            if number == words.unk_id or not (piece.strip().isascii() and piece.isprintable()):
                continue
            if not piece.strip():  # several pieces of one character, or a space that is not there
                continue
            written = "".join(tokenizer.normalize([piece]).numpy()[0].decode().split())
            assert token.replace("▁", "") == written

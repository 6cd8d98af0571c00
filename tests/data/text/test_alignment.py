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


TEXTS = [
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
    tokens = tf.function(lambda text: align(text, tokenizer))(tf.constant(TEXTS))
    ids, splits = tokenizer.tokenize(TEXTS)
    np.testing.assert_array_equal(tokens.ids.values, ids)
    np.testing.assert_array_equal(tokens.ids.row_splits, splits)
    for text, *columns in zip(TEXTS, *tokens):
        found, start, end = (column.numpy() for column in columns)
        assert (np.diff(start) >= 0).all()
        assert (np.diff(end) >= 0).all()
        assert end.max(initial=0) <= len(text)
        assert (end >= start).all()
        for number, piece in zip(found, (text[a:b] for a, b in zip(start, end))):
            token = words.tokens[number]
            if number == words.unk_id or not (piece.strip().isascii() and piece.isprintable()):
                continue
            if not piece.strip():  # several pieces of one character, or a space that is not there
                continue
            written = "".join(tokenizer.normalize([piece]).numpy()[0].decode().split())
            assert token.replace("▁", "") == written

"""Where word pieces stand in the text as it was written."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from convbert.data.text.alignment import align, covering
from convbert.data.tokenization import Tokenizer
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from tests.finetune.squad_support import CONTEXT, LONG, vocabulary
from tests.sentencepiece_support import comma_model

SWITCHES = [(True, True), (True, False), (False, True), (False, False)]
EVERY = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000)
TEXTS = [
    CONTEXT,
    "",
    LONG,
    "   ",
    "\ufeff a\ufeff",
    "ΟΔΟΣ ΟΔΟΣ. İİ",
    "a\u0301\u0300 e\u0301",
    EVERY,
]
TEXTS.append("".join(f"a{c}b\u0301{c} " for c in EVERY[:0x3000]))


def rows(tokens):
    """(ids, char_start, char_end) of each text."""
    return list(zip(*([row.numpy() for row in column] for column in tokens)))


def pieces(texts, tokenizer):
    """Returns the part of each text that each of its pieces covers."""
    found = zip(texts, rows(align(texts, tokenizer)))
    return [[text[a:b] for a, b in zip(starts, ends)] for text, (_, starts, ends) in found]


def places_by_loop(text, tokenizer):
    """[(start, end)] of pieces, character by character."""
    normalized = [
        part.decode() for part in tokenizer.normalize(tf.constant(list(text), tf.string)).numpy()
    ]
    source = [index for index, part in enumerate(normalized) for _ in part]
    whole = tokenizer.normalize(tf.constant([text]))
    character_of_byte = [
        index for index, c in enumerate(whole.numpy()[0].decode()) for _ in c.encode()
    ]
    _, starts, ends = tokenizer.tokenize_ragged_with_offsets(whole)
    found = []
    for start, end in zip(starts.values.numpy(), ends.values.numpy()):
        first, after = source[character_of_byte[start]], source[character_of_byte[end - 1]] + 1
        while after < len(text) and not normalized[after] and text[after] in accents():
            after += 1
        found.append((first, after))
    return found


def check(tokens, texts, tokenizer):
    """They are the tokenizer's, in the order of the text, and inside it."""
    ids, splits = tokenizer.tokenize(texts)
    np.testing.assert_array_equal(tokens.ids.values, ids)
    np.testing.assert_array_equal(tokens.ids.row_splits, splits)
    for text, (_, start, end) in zip(texts, rows(tokens)):
        assert (np.diff(start) >= 0).all()
        assert (np.diff(end) >= 0).all()
        assert end.max(initial=0) <= len(text)


@functools.cache
def accents():
    is_accent = tf.strings.regex_full_match(list(EVERY), r"\p{Mn}").numpy()
    return frozenset(np.array(list(EVERY))[is_accent].tolist())


@pytest.mark.parametrize(
    ("lower", "strip"),
    [
        SWITCHES[0],  # the others compute as long again, each
        *(pytest.param(*switches, marks=pytest.mark.slow) for switches in SWITCHES[1:]),
    ],
)
def test_every_character_beside_every_kind(lower, strip):
    tokenizer = Tokenizer(vocabulary(do_lower_case=lower, strip_accents=strip))
    tokens = tf.function(lambda text: align(text, tokenizer))(tf.constant(TEXTS))
    check(tokens, TEXTS, tokenizer)
    for text, (_, start, end) in zip(TEXTS, rows(tokens)):
        assert list(zip(start, end)) == places_by_loop(text, tokenizer)
        assert (end > start).all()
    assert align(tf.constant([], tf.string), tokenizer).ids.nrows() == 0


def test_pieces_that_cover_characters():
    tokens = align([CONTEXT, "", LONG], Tokenizer(vocabulary()))
    for text, (_, start, end) in enumerate(rows(tokens)):
        length = len((CONTEXT, "", LONG)[text])
        draw = np.random.default_rng(text)
        begin = draw.integers(0, length + 1, 200)
        stop = begin + draw.integers(1, 9, 200)
        first, last = covering(tokens, np.full(200, text), begin, stop)
        for index in range(200):
            touched = np.flatnonzero((start < stop[index]) & (end > begin[index]))
            found = range(int(first[index]), int(last[index]) + 1)
            assert list(found) == touched.tolist()


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


def test_places_of_sentencepiece():
    words = Vocabulary.of_model(comma_model())
    found = pieces(SENTENCEPIECE_TEXTS, create_tokenizer(words))
    assert "".join(found[0]).replace(" ", "") == "ACafé,in2007,``x'''''"
    assert found[1] == []
    assert "".join(found[2]).split() == ["theold", "river"]
    assert "".join(found[4]) == SENTENCEPIECE_TEXTS[4]
    numbers = "".join(found[6]).split("of")[1]
    assert numbers.strip("\u200b ") == "3,4,5,"

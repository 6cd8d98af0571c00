"""Where word pieces stand in the text as it was written."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from data.tokenization import Tokenizer
from tests.finetune.squad_support import CONTEXT, LONG, vocabulary
from text.alignment import align, covering

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
    ids, splits = tokenizer.tokenize(TEXTS)
    np.testing.assert_array_equal(tokens.ids.values, ids)
    np.testing.assert_array_equal(tokens.ids.row_splits, splits)
    for text, (_, start, end) in zip(TEXTS, rows(tokens)):
        assert list(zip(start, end)) == places_by_loop(text, tokenizer)
        assert (end > start).all()
        assert (np.diff(start) >= 0).all()
        assert (np.diff(end) >= 0).all()
        assert end.max(initial=0) <= len(text)
    assert align(tf.constant([], tf.string), tokenizer).ids.nrows() == 0


def test_places_of_pieces():
    texts = ["A Cafe\u0301 1995s", "\u200bé\u00adé\u200b 北京한", "x\ufffdy Zürich"]
    found = [
        [text[start:end] for start, end in zip(starts, ends)]
        for text, (_, starts, ends) in zip(texts, rows(align(texts, Tokenizer(vocabulary()))))
    ]
    assert found[0] == ["A", "Cafe\u0301", "19", "95", "s"]
    # What is one character in the text and several when normalised is in each of its pieces; what
    # is removed is in none, but for accents.
    assert found[1][:4] == ["é", "é", "北", "京"]
    assert set(found[1][4:]) == {"한"}
    assert found[2] == ["x", "y", "Z", "ü", "r", "i", "c", "h"]


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

"""Where special pieces stand, in choices too, and word pieces in the text as it was written."""

import re

import numpy as np
import pytest
import tensorflow as tf

from convbert.data.text.alignment import align
from convbert.data.text.choices import lay_out_choices
from convbert.data.text.layout import TextLayout
from convbert.data.text.words import lay_out_words, split_words
from convbert.data.tokenization import Frame
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from tests.sentencepiece_support import comma_model

UNK, SEP, CLS = 1, 2, 3


class Characters:
    """A tokenizer that cuts texts into characters and drops spaces."""

    unk_id, before_word = UNK, ""

    def __init__(self, frame):
        self.vocabulary, self.frame = self, frame

    def tokenize_ragged(self, lines):
        return tf.strings.unicode_decode(tf.strings.regex_replace(lines, " ", ""), "UTF-8")


BERT, XLNET = Frame((CLS,), (SEP,)), Frame((), (SEP,), (CLS,), end_segment=2)


def shown(sequences):
    names = {UNK: "?", SEP: "|", CLS: "^"}
    ids = ["".join(names.get(i, chr(i)) for i in row) for row in sequences.ids.to_list()]
    return list(zip(ids, ["".join(map(str, row)) for row in sequences.segment_ids.to_list()]))


@pytest.mark.parametrize(
    ("frame", "single", "pairs"),
    [
        (
            BERT,
            [("^ab|", "0000"), ("^|", "00"), ("^abcdef|", "00000000")],
            [("^ab|cd|", "0000111"), ("^|c|", "0011"), ("^ab|", "0000"), ("^abc|uv|", "00000111")],
        ),
        (
            XLNET,
            [("ab|^", "0002"), ("|^", "02"), ("abcdef|^", "00000002")],
            [("ab|cd|^", "0001112"), ("|c|^", "0112"), ("ab|^", "0002"), ("abc|uv|^", "00001112")],
        ),
    ],
)
def test_one_and_two_texts(frame, single, pairs):
    layout = TextLayout(Characters(frame), max_seq_length=8)
    found = tf.function(layout.single)(tf.constant(["ab", "", "abcdefgh"]))
    assert shown(found) == single
    assert found.truncated.numpy().tolist() == [False, False, True]
    first, second = ["ab", "", "ab", "abcd"], ["cd", "c", "", "uvwx"]
    found = tf.function(layout.pair)(tf.constant(first), tf.constant(second))
    assert shown(found) == pairs
    assert found.truncated.numpy().tolist() == [False, False, False, True]
    assert shown(layout.pair(tf.constant([], tf.string), tf.constant([], tf.string))) == []


@pytest.mark.parametrize(
    ("frame", "expected", "positions"),
    [
        (BERT, [("^ab?|", "00000"), ("^cde|", "00000")], [1, 3, 1]),
        (XLNET, [("ab?|^", "00002"), ("cde|^", "00002")], [0, 2, 0]),
    ],
)
def test_words(frame, expected, positions):
    layout = TextLayout(Characters(frame), max_seq_length=5)
    found = lay_out_words(layout, tf.ragged.constant([["ab", " ", "cde"]]))
    assert shown(found) == expected
    assert found.position.numpy().tolist() == positions


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


def test_words_stand_between_what_python_splits_at():
    text = "".join(f" a{c}b " for c in EVERY)
    found = split_words(tf.constant([text]))
    assert [word.decode() for word in found.values.numpy()] == text.split()


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


def by_a_loop(frame, row, option, length, max_qa_length, question_apart, fill_blank):
    """(ids, whether something is cut) of one option, from lists."""
    context, question, _ = row
    if not option:
        return [*frame.begin, SEP, SEP, *frame.end], False
    filled = fill_blank and "_" in question
    question = re.sub("_+", option, question) if filled else question
    if not question_apart:
        question, option = question + option * (not filled), ""
    ids = [[ord(c) for c in text if c != " "] for text in (context, question, option)]
    room = length - len(frame.begin) - len(frame.end) - (3 if question_apart else 2)
    cut = 0
    while len(ids[1]) + len(ids[2]) > min(max_qa_length, room):
        (ids[1] or ids[2]).pop(0)
        cut += 1
    parts = [part for part in ids[1:] if part]
    if len(parts) < 1 or (question_apart and not ids[2]):
        parts = [part for part in ids[1:2] if part] + [ids[2]]
    tail = [piece for part in parts for piece in (*part, SEP)]
    room = length - len(frame.begin) - len(frame.end) - 1 - len(tail)
    cut += max(0, len(ids[0]) - room)
    return [*frame.begin, *ids[0][:room], SEP, *tail, *frame.end], cut > 0


@pytest.mark.parametrize("frame", [BERT, XLNET], ids=["bert", "xlnet"])
@pytest.mark.parametrize("question_apart", [False, True])
@pytest.mark.parametrize("fill_blank", [False, True])
def test_random_texts(frame, question_apart, fill_blank):
    settings = {"question_apart": question_apart, "fill_blank": fill_blank}
    draw = np.random.default_rng(0)

    def text(longest):
        return "".join(draw.choice([*"abc_ "], draw.integers(0, longest)))

    contexts = [text(30) for _ in range(10)]  # which several questions share
    rows = []
    for _ in range(60):
        options = [text(9) for _ in range(4)]
        rows.append((str(draw.choice(contexts)), text(12), options))
    columns = [tf.constant(column) for column in zip(*rows, strict=True)]
    layout = TextLayout(Characters(frame), 24)
    found = lay_out_choices(layout, *columns, max_qa_length=14, **settings)
    pairs = [(row, option) for row in rows for option in row[2]]
    expected = [by_a_loop(frame, *pair, 24, 14, **settings) for pair in pairs]
    assert found.ids.to_list() == [ids for ids, _ in expected]
    for ids, segments in shown(found):
        first, end = ids.index("|") + 1, len(ids) - len(frame.end)
        assert segments == "0" * first + "1" * (end - first) + "2" * len(frame.end)
        assert len(ids) <= 24
    assert found.truncated.numpy().tolist() == [cut for _, cut in expected]
    assert {True, False} == {cut for _, cut in expected}
    assert CLS in found.ids.values.numpy()

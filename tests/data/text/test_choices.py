"""Contexts with questions and options: against the same laid out by a loop over lists."""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf

from convbert.data.text.choices import lay_out_choices
from convbert.data.text.layout import TextLayout
from tests.data.text.test_layout import BERT, CLS, SEP, XLNET, Characters, shown

SETTINGS = [
    {"question_apart": apart, "fill_blank": fill}
    for apart, fill in itertools.product([False, True], repeat=2)
]


def laid_out(frame, rows, length=40, max_qa_length=20, **settings):
    """`lay_out_choices` of (context, question, options)."""
    layout = TextLayout(Characters(frame), length)
    columns = [tf.constant(column) for column in zip(*rows, strict=True)]
    return lay_out_choices(layout, *columns, max_qa_length=max_qa_length, **settings)


ROW = ("abc", "x_y", ["o", "pq", ""])


@pytest.mark.parametrize(
    ("frame", "settings", "expected"),
    [
        (BERT, SETTINGS[2], ["^abc|x_y|o|", "^abc|x_y|pq|", "^||"]),
        (BERT, SETTINGS[0], ["^abc|x_yo|", "^abc|x_ypq|", "^||"]),
        (BERT, SETTINGS[1], ["^abc|xoy|", "^abc|xpqy|", "^||"]),
        (BERT, SETTINGS[3], ["^abc|xoy|o|", "^abc|xpqy|pq|", "^||"]),
        (XLNET, SETTINGS[1], ["abc|xoy|^", "abc|xpqy|^", "||^"]),
    ],
)
def test_layouts(frame, settings, expected):
    found = laid_out(frame, [ROW], **settings)
    assert [ids for ids, _ in shown(found)] == expected
    for ids, segments in shown(found):
        first, end = ids.index("|") + 1, len(ids) - len(frame.end)
        assert segments == "0" * first + "1" * (end - first) + "2" * len(frame.end)
    assert not any(found.truncated)


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
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_random_texts(frame, settings):
    draw = np.random.default_rng(0)

    def text(longest):
        return "".join(draw.choice([*"abc_ "], draw.integers(0, longest)))

    contexts = [text(30) for _ in range(10)]  # which several questions share
    rows = []
    for _ in range(60):
        options = [text(9) for _ in range(4)]
        rows.append((str(draw.choice(contexts)), text(12), options))
    found = laid_out(frame, rows, 24, 14, **settings)
    pairs = [(row, option) for row in rows for option in row[2]]
    expected = [by_a_loop(frame, *pair, 24, 14, **settings) for pair in pairs]
    for ids, (wanted, _) in zip(found.ids.to_list(), expected, strict=True):
        assert ids == wanted
        assert len(ids) <= 24
    assert found.truncated.numpy().tolist() == [cut for _, cut in expected]
    assert {True, False} == {cut for _, cut in expected}
    assert CLS in found.ids.values.numpy()

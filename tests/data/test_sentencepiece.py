# ruff: noqa: RUF001  (odd characters are what is tested)
"""SentencePiece vocabularies and their tokenizer against XLNet's Python code."""

import random
import time

import numpy as np
import pytest

from convbert.common.errors import InputError
from convbert.data.sentencepiece_tokenization import SentencePieceTokenizer
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from tests import sentencepiece_support as pieces
from tests.data.test_tokenization import LINES as COMMON

LINES = [
    *pieces.sentences(20, seed=1),
    *COMMON,
    "The river, in 1,234,567 of 2007, and 1999,",
    "12, 3,4,5, ,6 7,, x8,y 9,",
    "``quotes'' and `one' ```three''' '''' ` `",
    "北京 is 北京市, 100, 東京都; カタカナ ﾊﾟ 한국어 \U00020000",
    "«quotes» “curly” – — • ° © £5 €9 😀 🇩🇪 👩‍👩‍👧 ٣, 𝟗,",
    "<sep> <cls> <mask> <unk> <s> <eop> <eod> ▁ ▁the",
    "हिन्दी العربية עברית ไทย Tiếng Việt ёлка \u0f73\u0344 a\u0316\u0301\u0316",
    "¨leading  and   trailing spaces   ",
    " \t ",
    "x" * 500,
]
SWITCHES = [(False, True), (True, True), (False, False), (True, False)]


def as_lists(tokenizer, lines):
    ids, splits = tokenizer.tokenize(lines)
    return [part.tolist() for part in np.split(ids, splits[1:-1])]


def differing(words, lines):
    expected = map(pieces.PythonTokenizer(words).ids, lines)
    found = as_lists(create_tokenizer(words), lines)
    return [line for line, *ids in zip(lines, found, expected, strict=True) if ids[0] != ids[1]]


@pytest.mark.parametrize(("lower", "strip"), SWITCHES)
@pytest.mark.parametrize("model", [pieces.comma_model, lambda: pieces.vocabulary().model])
def test_ids_are_those_of_the_python_code(model, lower, strip):
    words = Vocabulary.of_model(model(), do_lower_case=lower, strip_accents=strip)
    assert not differing(words, LINES)
    known = np.concatenate(as_lists(create_tokenizer(words), LINES)) != words.unk_id
    assert known.mean() > 0.8  # or equality would say little


def test_ids_of_random_texts():
    words = Vocabulary.of_model(pieces.comma_model())
    draw = random.Random(0)
    kinds = [lambda: draw.choice([*words.tokens, "``", "''", "'", " ", "\u0301", "é", "7,"])] * 2
    kinds += [lambda: chr(draw.randint(1, 0xD7FF)), lambda: chr(draw.randint(32, 126))]
    lines = ["".join(draw.choice(kinds)() for _ in range(draw.randint(1, 30))) for _ in range(2000)]
    assert not differing(words, [line.replace("▁", " ") for line in lines])


def test_special_pieces_of_xlnet():
    words = pieces.vocabulary()
    names = ("unk_id", "cls_id", "sep_id", "pad_id", "mask_id")
    assert [getattr(words, name) for name in names] == [0, 3, 4, 5, 6]
    assert (words.tokens[7:9], words.tokens[9:17]) == (("<eod>", "<eop>"), tuple('.()"-–£€'))
    frame = create_tokenizer(words).frame
    assert (frame.begin, frame.after_text, frame.end, frame.end_segment) == ((), (4,), (3,), 2)


def test_the_same_text_makes_the_same_model():
    assert pieces.learned(pieces.sentences(400), 300).model == pieces.vocabulary().model
    assert pieces.learned(pieces.sentences(400)[::-1], 200).size == 200
    lowered = pieces.learned(["ÀÉ " * 5, "Ab"] * 9, 100, do_lower_case=True)
    assert not any(character in "".join(lowered.tokens) for character in "ABÀàÉé")


@pytest.mark.parametrize(("texts", "size"), [([], 100), (["", " \t", "\0"], 100), (["abcdef"], 18)])
def test_what_cannot_be_learned_from_is_rejected(texts, size):
    with pytest.raises(InputError):
        pieces.learned(texts, size)


@pytest.mark.parametrize(
    "content",
    [
        lambda: b"",
        lambda: b"no model",
        lambda: pieces.comma_model()[:-9],
        lambda: pieces.trained(100, ["<cls>", "<sep>", "<pad>", "<mask>"], model_type="bpe"),
        lambda: pieces.learned(["plain"], 40).model.replace(b"<cls>", b"<abc>"),
    ],
)
def test_what_is_no_model_is_rejected(tmp_path, content):
    (tmp_path / "spiece.model").write_bytes(content())
    with pytest.raises(InputError):
        Vocabulary.load(tmp_path)


def test_long_runs_take_no_quadratic_time():
    tokenizer = SentencePieceTokenizer(pieces.vocabulary())
    start = time.perf_counter()
    tokenizer.tokenize(["\u0301\u0316" * 50_000, "a" + "\u0f73" * 100_000, "`" * 100_000])
    assert time.perf_counter() - start < 5

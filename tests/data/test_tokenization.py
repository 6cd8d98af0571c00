# ruff: noqa: RUF001  (odd characters are what is tested)
"""The tokenizer against BERT's Python one, and its four settings."""

import random
import re
import time
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from official.nlp.tools.tokenization import FullTokenizer

from convbert.data import tokenization
from convbert.data.tokenization import Tokenizer
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.data.vocabulary_learning import learn_vocabulary

LINES = [
    "The quick brown fox jumps over the lazy dog, unaffably; isn't it?",
    "Prices rose 3.14% to $1,234.56 (from €999 or £5) -- see note #7 & [8]!",
    "Café naïve façade Ångström São Paulo Łódź, Straße, İstanbul, ΣΟΦΟΣ, ﬁne ½ … №",
    "cafe\u0301 decomposed, soft\u00adhyphen, zero\u200bwidth, \u202eright-to-left\u202c",
    "北京 is 北京市 and 東京都; カタカナ ひらがな 한국어 豈 \U00020000",
    "https://example.org/a_b?c=d&e=f#g user@example.org C:\\path\\file.txt x_y_z",
    "tab\there\rreturn \x00nul \x07bell \x7fdelete \ufffd \u00a0nbsp\u3000ideographic\u2028sep",
    "«quotes» “curly” ‘single’ – — • ° © ® ™ ± × ÷ ≤ ∞ → 😀 🇩🇪 👩‍👩‍👧",
    "a" * 150 + " " + "ab" * 100 + " end",
    "हिन्दी العربية עברית ไทย Tiếng Việt русский ёлка",
    "",
    "   ",
    "[CLS] [MASK] ##ing [unused1]",
    "`^~|<>=+_*@\"'/",
]


def english_vocabulary(**switches):
    return learn_vocabulary([*LINES, "the of and ##s"], 400, **switches)


@pytest.mark.parametrize("lower", [True, False])
def test_ids_are_those_of_the_python_tokenizer(tmp_path, lower):
    """The Python tokenizer has one switch for casing and accents together."""
    vocabulary = english_vocabulary(do_lower_case=lower, strip_accents=lower)
    vocabulary.save(tmp_path)
    python = FullTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=lower)
    ids, splits = Tokenizer(vocabulary).tokenize(LINES)
    for index, line in enumerate(LINES):
        expected = python.convert_tokens_to_ids(python.tokenize(line))
        assert ids[splits[index] : splits[index + 1]].tolist() == expected, line
    assert (ids != vocabulary.unk_id).mean() > 0.9  # or equality would say little


def test_every_character_is_treated_as_in_the_python_tokenizer(tmp_path):
    """All of the basic plane; what newer Unicode tables add may differ."""
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "b", "ab", "##b", "##a"))
    vocabulary.save(tmp_path)
    python = FullTokenizer(str(tmp_path / "vocab.txt"))
    lines = [f"a{chr(c)}b" for c in range(1, 0x10000) if not 0xD800 <= c <= 0xDFFF]
    ids, splits = Tokenizer(vocabulary).tokenize(lines)
    differ = [
        hex(ord(line[1]))
        for index, line in enumerate(lines)
        if python.convert_tokens_to_ids(python.tokenize(line))
        != ids[splits[index] : splits[index + 1]].tolist()
    ]
    assert len(differ) < 200, differ[:20]
    assert not [c for c in differ if int(c, 16) < 0x500]


def test_shapes_types_and_batches(monkeypatch):
    vocabulary = english_vocabulary()
    tokenizer = Tokenizer(vocabulary)
    ids, splits = tokenizer.tokenize(LINES)
    assert (ids.dtype, splits.dtype) == (np.int32, np.int64)
    assert splits.shape == (len(LINES) + 1,)
    assert (splits[0], splits[-1]) == (0, len(ids))
    for limit, size in (("_LINES_PER_BATCH", 3), ("_CHARACTERS_PER_BATCH", 100)):
        monkeypatch.setattr(tokenization, limit, size)
        for whole, parts in zip((ids, splits), tokenizer.tokenize(tuple(LINES))):
            np.testing.assert_array_equal(whole, parts)
    ids, splits = tokenizer.tokenize([])
    assert (ids.shape, splits.tolist()) == ((0,), [0])
    assert (ids.dtype, splits.dtype) == (np.int32, np.int64)


def test_very_long_words_are_cut_not_lost():
    """The original makes one [UNK] of a word over 200 characters; here it is 2,400 bytes."""
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "##a", "ก", "##ก"))
    tokenizer = Tokenizer(vocabulary)
    lines = [letter * n for letter, n in (("a", 201), ("a", 2400), ("ก", 800))]
    lines += [line + line[0] for line in lines[1:]]
    ids, splits = tokenizer.tokenize(lines)
    assert np.diff(splits).tolist() == [201, 2400, 800, 1, 1]
    assert np.flatnonzero(ids == vocabulary.unk_id).tolist() == [3401, 3402]
    normalized = [line.decode() for line in tokenizer.normalize(tf.constant(lines)).numpy()]
    for others in (
        tokenizer.tokenize_ragged_with_offsets(tf.constant(normalized))[0].values,
        tf.function(tokenizer.tokenize_ragged)(tf.constant(lines)).values,  # of SavedModels
    ):
        np.testing.assert_array_equal(others, ids)


HOSTILE = {
    "two accents in turns": "\u0327\u0301",
    "marks newer than the tables of accents": "\u0897\U00010d69",
    "marks of three kinds": "\u302e\u0301\U0001d165\u0334",
    "sigmas with accents": "Σ\u0301",
    "Thai without spaces": "ที่นี่",
    "a word without end": "ab",
}


def seconds(function, text: str) -> float:
    """The shorter of two runs."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        function(tf.constant([text]))
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_with_the_text_not_with_its_square(name):
    """Four times the text may take eight times as long, where its square takes sixteen times."""
    tokenizer = Tokenizer(Vocabulary((*SPECIAL_TOKENS, "a", "##a", "ab", "##b", "ท", "##น")))
    texts = tf.TensorSpec([None], tf.string)
    function = tf.function(tokenizer.tokenize_ragged, input_signature=[texts])
    function(tf.constant(["once, to trace"]))
    n = 20_000
    small = seconds(function, "a" + HOSTILE[name] * n)
    assert seconds(function, "a" + HOSTILE[name] * (2 * n)) < 4 * small + 0.1
    assert seconds(function, "a" + HOSTILE[name] * (4 * n)) < 8 * small + 0.1


@pytest.mark.parametrize("lower", [True, False])
def test_text_is_the_same_as_with_plain_nfd(lower):
    """Random marks of every script on random characters, but for the few that the rule names."""
    old = unicodedata.ucd_3_2_0  # what is newer differs by the tables of the ops alone
    rule = tokenization._OTHER_SORTED_MARKS  # whose code points Python writes otherwise
    rule = re.sub(r"\\x\{(\w+)\}", lambda match: f"\\U{int(match[1], 16):08x}", rule)
    other = re.compile(rule)
    named = [chr(c) for c in range(1, 0x20000) if old.category(chr(c)) not in ("Cn", "Cs", "Co")]
    named = [c for c in named if not other.match(c)]
    marks = [c for c in named if old.category(c) in ("Mn", "Mc")]
    odd = [*"aΣσςİIíéΆ:·' が각", "\u0345", "\u0344", "\u00ad", "\u200d", "e\u0301"]
    choices = random.Random(0)
    lines = [
        "".join(choices.choice(choices.choice([odd, named, marks])) for _ in range(8))
        for _ in range(20_000)
    ]
    expected = tf.strings.regex_replace(lines, tokenization._REMOVED, "")
    if lower:
        expected = tf.strings.lower(expected, encoding="utf-8")
    expected = tf_text.normalize_utf8(expected, "NFD")
    expected = tf.strings.regex_replace(expected, tokenization.ACCENTS, "")
    found = tokenization.normalize(tf.constant(lines), do_lower_case=lower, strip_accents=True)
    np.testing.assert_array_equal(found, expected)

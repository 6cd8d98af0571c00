"""Byte-level BPE: its ids and offsets, learning, and files."""

import json
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from convbert.common.errors import InputError
from convbert.data.build_options import BuildOptions
from convbert.data.text.alignment import align
from convbert.data.text.layout import TextLayout
from convbert.data.text.words import lay_out_words
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary, texts_of_bytes, word_starts
from convbert.data.vocabulary_learning import learn_vocabulary
from tests import command_support
from tests.data.test_tokenization import LINES as COMMON
from tests.sentencepiece_support import sentences

LINES = [*sentences(20, seed=1), *COMMON, "[MASK] in [CLS] a [MASK]", " "]


def learned(texts, size=400, **options):
    return learn_vocabulary(texts, size, tokenizer="bpe", **options)


@pytest.fixture(scope="module")
def pairs():
    return learned(sentences(400))


def test_ids_are_those_of_the_package(pairs):
    """Of 1,000 lines, also in a graph, for any batch."""
    draw = random.Random(0)
    kinds = [lambda: draw.choice([*pairs.tokens, " ", "\u0301", "é"])] * 2
    kinds += [lambda: chr(draw.randint(1, 0xD7FF)), lambda: chr(draw.randint(32, 126))]
    lines = ["".join(draw.choice(kinds)() for _ in range(draw.randint(0, 30))) for _ in range(974)]
    package = tokenizers.Tokenizer.from_buffer(pairs.model)
    expected = [package.encode(line, add_special_tokens=False).ids for line in LINES + lines]
    tokenize = tf.function(create_tokenizer(pairs).tokenize_ragged, autograph=False)
    assert tokenize(tf.constant(LINES + lines)).to_list() == expected
    assert tokenize(tf.constant([], tf.string)).to_list() == []
    assert len({*np.concatenate(expected)}) > 300


def test_pieces_cover_the_text(pairs):
    """Without the space before a word; parts of a character cover all of it."""
    lines, tokenizer = tf.constant(LINES), create_tokenizer(pairs)
    found = align(lines, tokenizer)
    assert found.ids.to_list() == tokenizer.tokenize_ragged(lines).to_list()
    for line, starts, ends in zip(LINES, found.char_start.to_list(), found.char_end.to_list()):
        covered = {place for start, end in zip(starts, ends) for place in range(start, end)}
        marks = {place for place, c in enumerate(line) if c.isspace() or unicodedata.combining(c)}
        assert {*range(len(line))} - marks <= covered
        assert all(end > start and (end == start + 1 or line[start] != " ")
                   for start, end in zip(starts, ends))  # fmt: skip


def test_words_and_lines_are_separated(pairs):
    """As in a text: by a space, in tagging and in documents of lines."""
    tokenizer = create_tokenizer(pairs)
    expected = tokenizer.tokenize(["The river runs, and"])[0].tolist()
    words = tf.ragged.constant([["The", "river", "runs,", "and"], ["The"]])
    laid = lay_out_words(TextLayout(tokenizer, 32), words)
    assert laid.ids.to_list()[0] == [pairs.cls_id, *expected, pairs.sep_id]
    ((ids, ends),) = tokenizer.tokenize_documents([["The river", "runs, and"]])
    assert ids.tolist() == expected
    assert ends.tolist() == [len(tokenizer.tokenize(["The river"])[0]), len(expected)]


def test_a_mask_takes_the_space_before_it(pairs):
    texts = tf.constant(["the [MASK] of", "the of"])
    masked, without = create_tokenizer(pairs).tokenize_ragged(texts).to_list()
    assert [of for of in masked if of != pairs.mask_id] == without


def test_a_learned_vocabulary(pairs):
    assert (pairs.size, pairs.tokens[:5]) == (400, SPECIAL_TOKENS)
    assert (pairs.pad_id, pairs.cls_id, pairs.mask_id) == (0, 2, 4)
    frame = create_tokenizer(pairs).frame
    expected = tokenizers.Tokenizer.from_buffer(pairs.model).encode("", "").ids
    assert [*frame.begin, *frame.after_text, *frame.after_text] == expected
    begins = [token for token, start in zip(pairs.tokens, word_starts(pairs)) if start]
    assert "\u0120the" in begins
    assert "e" not in begins
    text = "A café, 北京 😀"
    ids = create_tokenizer(pairs).tokenize([text])[0]
    found = texts_of_bytes([pairs.tokens[number] for number in ids])
    assert b"".join(found).decode() == text


def test_the_same_text_makes_the_same_vocabulary(pairs, tmp_path):
    """Also in a process of other hashes."""
    script = tmp_path / "other.py"
    script.write_text("from tests.data.test_bpe import *\nprint(learned(sentences(400)).digest)")
    assert command_support.run(script).stdout.split()[-1:] == [pairs.digest]
    assert learned(sentences(300)).digest != pairs.digest


def changed(pairs, **changes):
    return json.dumps({**json.loads(pairs.model), **changes}).encode()


def test_what_is_no_byte_level_bpe_is_rejected(pairs):
    words = json.loads(tokenizers.Tokenizer(tokenizers.models.WordPiece({"a": 0})).to_str())
    model = json.loads(pairs.model)["model"]
    gap = {**model["vocab"], pairs.tokens[-1]: 1000}
    lacking = {token: number for number, token in enumerate(set(model["vocab"]) - {"a"})}
    for content, said in (
        (b"{", "the tokenizer"),
        (b'{"model": []}', "`model`"),
        (json.dumps(words).encode(), "`type`"),
        (changed(pairs, pre_tokenizer={"type": "Whitespace"}), "`pre_tokenizer`"),
        (changed(pairs, normalizer={"type": "Precompiled"}), "`normalizer`"),
        # Of a step that is no sequence, the package reads no parts.
        (changed(pairs, normalizer={"type": "Replace", "normalizers": []}), "`normalizer`"),
        (changed(pairs, normalizer={"type": "Sequence", "normalizers": 5}), "`normalizers`"),
        (changed(pairs, model={**model, "dropout": 0.5}), "`dropout`"),
        (changed(pairs, model={**model, "vocab": gap, "merges": []}), "consecutive"),
        (changed(pairs, model={**model, "vocab": lacking, "merges": []}), "every byte"),
    ):
        with pytest.raises(InputError, match=said):
            Vocabulary.of_bpe(content)
    with pytest.raises(InputError, match="`vocab_size`"):
        learned(sentences(9), 200)
    with pytest.raises(InputError, match="`do_lower_case`"):
        BuildOptions("text", "text", "data", tokenizer="bpe", do_lower_case=True)

"""Added tokens: where they are read from, what ids they give, what cannot be honoured."""

from __future__ import annotations

import dataclasses
import json

import pytest
import tensorflow as tf

from checkpoints.huggingface.tokenizer import read_vocabulary, write_tokenizer
from data.added_tokens import AddedToken
from data.tokenization import Tokenizer
from data.vocabulary import Vocabulary
from errors import InputError
from tests.huggingface_support import change_json, copied, load

CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
V = 137


def entry(content, **flags):
    default = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    return {"content": content, **default, "special": False, **flags}


X = entry("<X>", normalized=False, special=True)
Y = entry("<Yé>")


def add(folder, *tokens, where):
    """Says the tokens, from id 137 on, in one of the files."""
    by_id = dict(enumerate(tokens, V))
    if where == TOKENIZER:
        stored = json.loads((folder / TOKENIZER).read_text())["added_tokens"]
        stored += [{"id": number, **token} for number, token in by_id.items()]
        change_json(folder / TOKENIZER, added_tokens=stored)
    elif where == CONFIG:
        change_json(folder / CONFIG, added_tokens_decoder={str(n): t for n, t in by_id.items()})
    else:
        ids = {token["content"]: number for number, token in by_id.items()}
        (folder / "added_tokens.json").write_text(json.dumps(ids))
        special = [token["content"] for token in tokens if token["special"]]
        (folder / "special_tokens_map.json").write_text(
            json.dumps({"additional_special_tokens": special})
        )


def read(folder) -> Vocabulary:
    return read_vocabulary(str(folder))[0]


def refused(folder) -> str:
    with pytest.raises(InputError) as error:
        read(folder)
    assert str(folder) in str(error.value)
    return str(error.value)


def ids_of(vocabulary: Vocabulary, text: str) -> list[int]:
    return Tokenizer(vocabulary).tokenize([text])[0].tolist()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("electra", TOKENIZER),
        ("electra", CONFIG),
        ("convbert", CONFIG),
        ("convbert", "added_tokens.json"),
    ],
)
def test_ids_exist_and_texts_hold_them(name, where, tmp_path):
    folder = copied(name, tmp_path)
    add(folder, X, {**Y, "content": "<Y>"}, where=where)
    vocabulary = read(folder)
    plain = load(name).vocabulary
    assert vocabulary.tokens == (*plain.tokens, "<X>", "<Y>")
    assert [token.content for token in vocabulary.added_tokens] == ["<X>", "<Y>"]
    the, of = ids_of(plain, "the"), ids_of(plain, "of")
    assert ids_of(vocabulary, "the<X>of <X><Y>") == [*the, 137, *of, 137, 138]
    assert ids_of(vocabulary, "<x> the") == ids_of(plain, "<x> the")  # not the text as it is
    assert ids_of(vocabulary, "the<y>the") == [*the, 138, *the]  # normalised, as it is said
    assert ids_of(vocabulary, "the of") == [*the, *of]


def test_a_cased_vocabulary_keeps_the_case(tmp_path):
    folder = copied("bert", tmp_path)
    add(folder, {**Y, "content": "<Y>"}, where=TOKENIZER)
    vocabulary = read(folder)
    assert ids_of(vocabulary, "<Y>") == [V]
    assert ids_of(vocabulary, "<y>") == ids_of(load("bert").vocabulary, "<y>")


def test_the_longest_is_found_and_marks_of_texts_are_none(tmp_path):
    folder = copied("electra", tmp_path)
    tokens = [entry("<A"), entry("<AB>"), entry("word")]
    add(folder, *tokens, where=TOKENIZER)
    vocabulary = read(folder)
    plain = load("electra").vocabulary
    assert ids_of(vocabulary, "<ab><a") == [V + 1, V]
    assert ids_of(vocabulary, "theWords") == [
        *ids_of(plain, "the"),
        V + 2,
        *ids_of(plain, "s"),
    ]
    # Characters of private use stand for nothing.
    assert ids_of(vocabulary, "the \U000f0000\U000f0001") == ids_of(plain, "the \U000f0000")


def test_in_a_graph(tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, X, where=TOKENIZER)
    vocabulary = read(folder)
    tokenizer = Tokenizer(vocabulary)
    function = tf.function(
        tokenizer.tokenize_ragged, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    texts = ["the <X>", "", "<X><X>the"]
    assert function(tf.constant(texts)).to_list() == [ids_of(vocabulary, text) for text in texts]


@pytest.mark.parametrize("lower", [True, False])
def test_saved_and_written(lower, tmp_path):
    tokens = (*load("bert").vocabulary.tokens, "<X>", "<Y>")
    added = (
        AddedToken("<X>", normalized=False, special=True, lstrip=True),
        AddedToken("<Y>", rstrip=True),
    )
    vocabulary = Vocabulary(tokens, lower, lower, added)
    assert vocabulary.digest != Vocabulary(tokens, lower, lower).digest
    vocabulary.save(tmp_path / "model")
    assert Vocabulary.load(tmp_path / "model") == vocabulary
    (tmp_path / "theirs").mkdir()
    write_tokenizer(vocabulary, str(tmp_path / "theirs"), 24)
    assert read(tmp_path / "theirs") == vocabulary
    (tmp_path / "theirs" / TOKENIZER).unlink()
    assert read(tmp_path / "theirs") == vocabulary
    assert Vocabulary.load(tmp_path / "theirs") == vocabulary


def test_without_added_tokens_nothing_is_different(tmp_path):
    """Neither the files nor the digest of a vocabulary that has none."""
    vocabulary = load("bert").vocabulary
    vocabulary.save(tmp_path)
    assert json.loads((tmp_path / CONFIG).read_text()).keys() == {"do_lower_case", "strip_accents"}
    assert vocabulary.added_tokens == ()
    assert dataclasses.replace(vocabulary).digest == vocabulary.digest


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ([entry("<X>", single_word=True)], "`single_word` of '<X>' should be false"),
        ([entry("a b")], "'a b' should not hold whitespace"),
        ([entry("##ings")], "'##ings' should not begin with ##"),
        ([Y], "'<Yé>' should not hold control characters or accents"),
        ([entry("word", normalized=False)], "'word' is a word, so `normalized` should be true"),
        ([entry("<a<"), entry("<b>")], "'<a<' and '<b>' may overlap"),
        ([entry("<x>"), entry("<X>", normalized=False)], "'<x>' differ in nothing but case"),
        ([entry("")], "a token should have a `content`"),
        ([entry("<X>", special=1)], "`special` of '<X>' should be true or false"),
    ],
)
def test_what_cannot_be_found_as_there(tokens, complaint, tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, *tokens, where=TOKENIZER)
    assert complaint in refused(folder)


def test_ids_that_contradict(tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, X, where=TOKENIZER)
    add(folder, {**X, "special": False}, where=CONFIG)
    assert "'<X>' has another id or other flags" in refused(folder)
    change_json(folder / CONFIG, added_tokens_decoder={"140": entry("<Z>")})
    assert "'<Z>' should be 138, the next one. Received: 140" in refused(folder)
    change_json(folder / CONFIG, added_tokens_decoder={"138": entry("the")})
    known = load("electra").vocabulary.ids["the"]
    assert f"'the' should be {known}, that of its piece. Received: 138" in refused(folder)
    change_json(folder / CONFIG, added_tokens_decoder="absent", extra_special_tokens=["<Q>"])
    assert "'<Q>' should have an id" in refused(folder)
    change_json(folder / CONFIG, extra_special_tokens=["<X>", "[CLS]"])
    assert [token.content for token in read(folder).added_tokens] == ["<X>"]
    (folder / "special_tokens_map.json").write_text('{"unk_token": "<unk>"}')
    assert "special_tokens_map.json: `unk_token` should be '[UNK]'" in refused(folder)


def test_special_tokens_that_are_not_to_be_found(tmp_path):
    folder = copied("electra", tmp_path)
    change_json(folder / CONFIG, split_special_tokens=True)
    assert read(folder) == load("electra").vocabulary  # BERT's five never are
    add(folder, X, where=TOKENIZER)
    assert "`split_special_tokens` should be False, as <X>" in refused(folder)


def test_spans_are_refused_by_name(tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, X, where=TOKENIZER)
    tokenizer = Tokenizer(read(folder))
    with pytest.raises(InputError, match=r"spans of text are not supported .* added tokens"):
        tokenizer.tokenize_ragged_with_offsets(tf.constant(["the"]))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"post_processor": None}, "`post_processor` should make [CLS] A [SEP]"),
        ({"post_processor": {"type": "ByteLevel"}}, "`post_processor` should make [CLS] A"),
        (
            {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 4], "cls": ["[X]", 3]}},
            "`post_processor` should make [CLS] A",
        ),
        ({"model": {"max_input_chars_per_word": 5}}, "`max_input_chars_per_word` should be 100"),
        ({"model": {"max_input_chars_per_word": 500}}, "`max_input_chars_per_word` should be 100"),
        ({"normalizer": {"clean_text": False}}, "`clean_text` of the normalizer should be True"),
        ({"normalizer": {"type": "Sequence"}}, "`type` of the normalizer"),
    ],
    ids=str,
)
def test_settings_of_the_tokenizer_that_change_ids(changes, complaint, tmp_path):
    folder = copied("bert", tmp_path)
    whole = json.loads((folder / TOKENIZER).read_text())
    (name, change), *_ = changes.items()
    if name != "post_processor":
        change = {**whole[name], **change}
    change_json(folder / TOKENIZER, **{name: change})
    assert complaint in refused(folder)


def test_a_post_processor_by_its_older_name(tmp_path):
    folder = copied("bert", tmp_path)
    older = {"type": "BertProcessing", "sep": ["[SEP]", 4], "cls": ["[CLS]", 3]}
    change_json(folder / TOKENIZER, post_processor=older)
    assert read(folder) == load("bert").vocabulary


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"max_input_chars_per_word": 50}, "`max_input_chars_per_word` should be 100"),
        ({"never_split": ["<Z>"]}, "`never_split` should be among [PAD]"),
        ({"do_basic_tokenize": False}, "`do_basic_tokenize` should be True"),
        ({"tokenize_chinese_chars": False}, "`tokenize_chinese_chars` should be True"),
        ({"added_tokens_decoder": [1]}, "`added_tokens_decoder` should map ids to tokens"),
        ({"added_tokens_decoder": {"x": {}}}, "`added_tokens_decoder` should map ids to tokens"),
        ({"added_tokens_decoder": {"137": 1}}, "a token should have a `content`. Received: 1"),
        ({"truncation_side": "left"}, "`truncation_side` should be 'right'"),
    ],
    ids=str,
)
def test_settings_of_the_config_that_change_ids(changes, complaint, tmp_path):
    folder = copied("convbert", tmp_path)
    change_json(folder / CONFIG, **changes)
    assert complaint in refused(folder)


def test_accents_are_honoured(tmp_path):
    folder = copied("convbert", tmp_path)
    for said, expected in ((None, True), (False, False), (True, True)):
        change_json(folder / CONFIG, strip_accents=said, never_split=["[MASK]"])
        assert read(folder).strip_accents is expected

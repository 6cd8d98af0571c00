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
    assert Vocabulary.load(tmp_path / "theirs") == vocabulary


def test_without_added_tokens_nothing_is_different(tmp_path):
    """Neither the files nor the digest of a vocabulary that has none."""
    vocabulary = load("bert").vocabulary
    vocabulary.save(tmp_path)
    assert json.loads((tmp_path / CONFIG).read_text()).keys() == {"do_lower_case", "strip_accents"}
    assert vocabulary.added_tokens == ()
    assert dataclasses.replace(vocabulary).digest == vocabulary.digest


def test_the_files_of_a_folder_agree(tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, X, where=TOKENIZER)
    change_json(folder / CONFIG, extra_special_tokens=["<X>", "[CLS]"])
    assert [token.content for token in read(folder).added_tokens] == ["<X>"]
    add(folder, {**X, "special": False}, where=CONFIG)
    with pytest.raises(InputError, match="<X>"):
        read(folder)
    (folder / "special_tokens_map.json").write_text('{"unk_token": "<unk>"}')
    with pytest.raises(InputError, match=r"special_tokens_map\.json: `unk_token`"):
        read(folder)


@pytest.mark.parametrize("lists", [[Y], [entry("<x>"), entry("<X>", normalized=False)]], ids=str)
def test_tokens_that_lower_case_would_change(lists, tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, *lists, where=TOKENIZER)
    with pytest.raises(InputError, match=str(folder)):
        read(folder)


def test_spans_are_rejected(tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, X, where=TOKENIZER)
    tokenizer = Tokenizer(read(folder))
    with pytest.raises(InputError, match="added tokens"):
        tokenizer.tokenize_ragged_with_offsets(tf.constant(["the"]))


def test_a_post_processor_by_its_older_name(tmp_path):
    folder = copied("bert", tmp_path)
    older = {"type": "BertProcessing", "sep": ["[SEP]", 4], "cls": ["[CLS]", 3]}
    change_json(folder / TOKENIZER, post_processor=older)
    assert read(folder) == load("bert").vocabulary


def test_accents_are_honoured(tmp_path):
    folder = copied("convbert", tmp_path)
    for said, expected in ((None, True), (False, False), (True, True)):
        change_json(folder / CONFIG, strip_accents=said, never_split=["[MASK]"])
        assert read(folder).strip_accents is expected
